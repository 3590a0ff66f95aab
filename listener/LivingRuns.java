import java.util.HashMap;
import java.util.Map;

/**
 * Tells in one answer what all living runs of a Spark application do; living_runs.py reads it.
 *
 * <p>Janino, the compiler that Spark brings for its generated code, compiles this in the driver.
 * Methods are called by name: their classes moved between Spark's versions.
 */
public class LivingRuns {
  private static final String FIELD = "\u001f";
  private static final String RUN = "\u001e";

  private Map told = new HashMap();

  /**
   * For each run its ids, whether it is active, its batch's id, its status, and what is new.
   *
   * @param executions SharedState.activeStreamingQueries: a StreamExecution by query id
   * @param batchHolder the method of a StreamExecution whose result knows the batch's id, or an
   *     empty text where it does so itself
   */
  public String tell(Map executions, String batchHolder) throws Exception {
    StringBuilder answer = new StringBuilder();
    Map telling = new HashMap();
    for (Object execution : executions.values()) {
      Object runId = call(execution, "runId");
      Told before = (Told) told.get(runId);
      Told now = look(execution, batchHolder, before == null ? new Told() : before);
      telling.put(runId, now);
      answer.append(call(execution, "id")).append(FIELD).append(runId);
      answer.append(FIELD).append(call(execution, "isActive"));
      answer.append(FIELD).append(call(call(execution, "status"), "json"));
      answer.append(FIELD).append(now.batchId).append(FIELD).append(now.offsets);
      answer.append(FIELD).append(now.idle).append(RUN);
    }
    told = telling;
    return answer.toString();
  }

  /** Offsets are told once for each batch, and once each progress of a trigger without one. */
  private Told look(Object execution, String batchHolder, Told before) throws Exception {
    Told now = new Told();
    // Continuous must not be asked for its batch; its offsets are those of its last epoch.
    boolean counts = !execution.getClass().getSimpleName().startsWith("Continuous");
    if (counts) {
      now.batchId = batchId(execution, batchHolder);
    }
    if (!counts || !now.batchId.equals(before.batchId)) {
      now.offsets = String.valueOf(call(execution, "committedOffsets"));
    }
    now.progress = call(execution, "lastProgress");
    if (now.progress != null && now.progress != before.progress && !hasBatch(now.progress)) {
      now.idle = String.valueOf(call(now.progress, "json"));
    }
    return now;
  }

  private static String batchId(Object execution, String holder) throws Exception {
    Object id = holder.isEmpty()
        ? call(execution, "currentBatchId")
        : call(call(execution, holder), "batchId");
    return String.valueOf(id);
  }

  private static boolean hasBatch(Object progress) throws Exception {
    return ((Map) call(progress, "durationMs")).containsKey("addBatch");
  }

  private static Object call(Object on, String method) throws Exception {
    return on.getClass().getMethod(method, new Class[0]).invoke(on, new Object[0]);
  }

  private static class Told {
    String batchId = "";
    String offsets = "";
    String idle = "";
    Object progress;
  }
}
