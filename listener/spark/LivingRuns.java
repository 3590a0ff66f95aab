import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Queue;

/** Describes all active runs of a Spark application in one answer; execution.py reads it. */
class LivingRuns {
  private static final String FIELD = "\u001f";
  private static final String RECORD = "\u001e";
  private static final String GROUP = "\u001d";

  private final Calls calls;
  private final ThreadMXBean threads = ManagementFactory.getThreadMXBean();
  private Map known = new HashMap();
  private boolean inContext = true;
  private Object oldestEvent;
  private long oldestSince;

  LivingRuns(Calls calls) {
    this.calls = calls;
  }

  /**
   * For each run: its ids, whether it is active, or was stopped and goes on, the CPU time of its
   * thread, its status, its batch id, and what changed since the last call; at the end, whether the
   * SparkContext is stopped, and its scheduler.
   *
   * <p>For a run that throws: its ids and the exception's class.
   *
   * @param executions a StreamExecution by query id
   */
  String text(Map executions, Object context) throws Exception {
    StringBuilder answer = new StringBuilder();
    Map before = known;
    known = new HashMap();
    for (Iterator entries = executions.entrySet().iterator(); entries.hasNext(); ) {
      Map.Entry entry = (Map.Entry) entries.next();
      Object runId = "";
      String described;
      try {
        runId = call(entry.getValue(), "runId");
        described = describe(entry.getValue(), runId, (Seen) before.get(runId));
      } catch (Throwable error) {
        described = error.getClass().getName();
      }
      answer.append(entry.getKey()).append(FIELD).append(runId).append(FIELD);
      answer.append(described).append(RECORD);
    }
    boolean stopped = Boolean.TRUE.equals(call(context, "isStopped"));
    answer.append(stopped).append(FIELD).append(stopped ? "" : scheduler(context));
    return answer.append(RECORD).toString();
  }

  /**
   * Whether the thread of the DAGScheduler's event loop is alive, and for how many nanoseconds the
   * oldest event that waits for it was seen there; empty where Spark refuses it.
   *
   * <p>An error that is fatal for Scala, such as a StackOverflowError, ends that thread without a
   * word. The context goes on until the next event is posted; then Spark stops it.
   */
  private String scheduler(Object context) {
    try {
      Object loop = call(call(context, "dagScheduler"), "eventProcessLoop");
      Object oldest = ((Queue) call(loop, "org$apache$spark$util$EventLoop$$eventQueue")).peek();
      long now = System.nanoTime();
      if (oldest == null || oldest != oldestEvent) {
        oldestEvent = oldest;
        oldestSince = now;
      }
      return call(loop, "isActive") + FIELD + (now - oldestSince);
    } catch (Throwable refused) {
      return "";
    }
  }

  /** Reports offsets once per batch, and each progress of a trigger without a batch once. */
  private String describe(Object execution, Object runId, Seen before) throws Exception {
    Thread thread = (Thread) call(execution, "queryExecutionThread");
    boolean active = Boolean.TRUE.equals(call(execution, "isActive"));
    // The end of its thread is the end of the run; stop() only begins it.
    boolean ended = thread.getState() == Thread.State.TERMINATED;
    boolean stopping = !active && !ended && !hasFailed(execution);
    Object status = call(execution, "status");
    Seen now = new Seen();
    now.session = before == null ? sessionOf(execution) : before.session;
    // Do not ask a continuous query for its batch; its offsets are those of its last epoch.
    boolean counts = !execution.getClass().getSimpleName().startsWith("Continuous");
    now.batchId = counts ? batchId(execution) : "";
    boolean isNewBatch = !counts || before == null || !now.batchId.equals(before.batchId);
    now.progress = call(execution, "lastProgress");
    boolean isNew = now.progress != null && (before == null || now.progress != before.progress);
    boolean isIdle = isNew && !((Map) call(now.progress, "durationMs")).containsKey("addBatch");
    boolean goesOn = (active && !ended) || stopping;
    String text = goesOn + FIELD + stopping + FIELD + cpuOf(thread) + FIELD
        + clean(call(status, "message")) + FIELD + call(status, "isDataAvailable") + FIELD
        + call(status, "isTriggerActive") + FIELD + now.batchId + FIELD + now.session + FIELD
        + (isNewBatch ? clean(call(execution, "committedOffsets")) : "") + FIELD
        + (isIdle ? clean(call(now.progress, "json")) : "");
    known.put(runId, now);
    return text;
  }

  private String batchId(Object execution) throws Exception {
    if (inContext) {
      try {
        return String.valueOf(call(call(execution, "getLatestExecutionContext"), "batchId"));
      } catch (NoSuchMethodException error) {
        // Spark 3.5 holds it in the execution itself.
        inContext = false;
      }
    }
    return String.valueOf(call(execution, "currentBatchId"));
  }

  private boolean hasFailed(Object execution) throws Exception {
    return Boolean.TRUE.equals(call(call(execution, "exception"), "isDefined"));
  }

  /** Nanoseconds; empty where the JVM does not count them. */
  private String cpuOf(Thread thread) {
    try {
      long nanoseconds = threads.getThreadCpuTime(thread.getId());
      return nanoseconds < 0 ? "" : String.valueOf(nanoseconds);
    } catch (UnsupportedOperationException error) {
      return "";
    }
  }

  /** The identity hash of the session that the batches run in; empty where Spark refuses it. */
  private String sessionOf(Object execution) {
    try {
      return String.valueOf(System.identityHashCode(call(execution, "sparkSessionForStream")));
    } catch (Exception error) {
      return "";
    }
  }

  private Object call(Object on, String name) throws Exception {
    return calls.call(on, name);
  }

  private static String clean(Object text) {
    return String.valueOf(text).replace(FIELD, " ").replace(RECORD, " ").replace(GROUP, " ");
  }

  private static class Seen {
    String batchId;
    String session;
    Object progress;
  }
}
