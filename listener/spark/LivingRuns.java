import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.Map;

/**
 * Describes all active runs of a Spark application in one answer; execution.py reads it.
 *
 * <p>Janino, Spark's compiler for generated code, compiles this class in the driver, so it uses
 * only Java 8, without lambdas and type parameters. Methods are called by name, because their
 * classes moved between Spark versions.
 */
public class LivingRuns {
  private static final String FIELD = "\u001f";
  private static final String RUN = "\u001e";

  private final Map methods = new HashMap();
  private final ThreadMXBean threads = ManagementFactory.getThreadMXBean();
  private Map known = new HashMap();
  private boolean inContext = true;

  /**
   * For each run: its ids, whether it is active, or was stopped and goes on, the CPU time of its
   * thread, its status, its batch id, and what changed since the last call; at the end, whether the
   * SparkContext is stopped.
   *
   * <p>For a run that throws: its ids and the exception's class.
   *
   * @param executions SharedState.activeStreamingQueries: a StreamExecution by query id
   */
  public String ask(Map executions, Object context) throws Exception {
    StringBuilder answer = new StringBuilder();
    Map before = known;
    known = new HashMap();
    for (Object each : executions.entrySet()) {
      Map.Entry entry = (Map.Entry) each;
      answer.append(entry.getKey()).append(FIELD);
      describe(entry.getValue(), before, answer);
      answer.append(RUN);
    }
    return answer.append(call(context, "isStopped")).append(RUN).toString();
  }

  private void describe(Object execution, Map before, StringBuilder answer) {
    Object runId = "";
    int length = answer.length();
    try {
      runId = call(execution, "runId");
      Run now = read(execution, (Run) before.get(runId));
      answer.append(runId).append(FIELD);
      now.describe(answer);
      known.put(runId, now);
    } catch (Throwable error) {
      answer.setLength(length);
      answer.append(runId).append(FIELD).append(causeOf(error).getClass().getName());
    }
  }

  /** Reports offsets once per batch, and each progress of a trigger without a batch once. */
  private Run read(Object execution, Run before) throws Exception {
    Run now = new Run();
    Thread thread = (Thread) call(execution, "queryExecutionThread");
    boolean active = Boolean.TRUE.equals(call(execution, "isActive"));
    // The end of its thread is the end of the run; stop() only begins it.
    boolean ended = thread.getState() == Thread.State.TERMINATED;
    now.stopping = !active && !ended && !hasFailed(execution);
    now.active = (active && !ended) || now.stopping;
    now.cpu = cpuOf(thread);
    Object status = call(execution, "status");
    now.message = clean(call(status, "message"));
    now.hasData = call(status, "isDataAvailable");
    now.triggered = call(status, "isTriggerActive");
    now.session = before == null ? sessionOf(execution) : before.session;
    // Do not ask a continuous query for its batch; its offsets are those of its last epoch.
    boolean counts = !execution.getClass().getSimpleName().startsWith("Continuous");
    if (counts) {
      now.batchId = batchId(execution);
    }
    if (!counts || before == null || !now.batchId.equals(before.batchId)) {
      now.offsets = clean(call(execution, "committedOffsets"));
    }
    now.progress = call(execution, "lastProgress");
    boolean isNew = before == null || now.progress != before.progress;
    if (now.progress != null && isNew && !hasBatch(now.progress)) {
      now.idle = clean(call(now.progress, "json"));
    }
    return now;
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

  private boolean hasBatch(Object progress) throws Exception {
    return ((Map) call(progress, "durationMs")).containsKey("addBatch");
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
    return method(on.getClass(), name).invoke(on, new Object[0]);
  }

  private Method method(Class type, String name) throws Exception {
    Map ofType = (Map) methods.get(type);
    if (ofType == null) {
      ofType = new HashMap();
      methods.put(type, ofType);
    }
    Method method = (Method) ofType.get(name);
    if (method == null) {
      method = find(type, name);
      method.setAccessible(true);
      ofType.put(name, method);
    }
    return method;
  }

  /** Finds private methods too: some that are public in Spark 4 are private in Spark 3.5. */
  private static Method find(Class type, String name) throws Exception {
    for (Class owner = type; owner != null; owner = owner.getSuperclass()) {
      Method[] declared = owner.getDeclaredMethods();
      for (int i = 0; i < declared.length; i++) {
        if (declared[i].getName().equals(name) && declared[i].getParameterTypes().length == 0) {
          return owner.getDeclaredMethod(name, new Class[0]);
        }
      }
    }
    return type.getMethod(name, new Class[0]);
  }

  private static String clean(Object text) {
    return String.valueOf(text).replace(FIELD, " ").replace(RUN, " ");
  }

  private static Throwable causeOf(Throwable error) {
    boolean wraps = error instanceof InvocationTargetException && error.getCause() != null;
    return wraps ? error.getCause() : error;
  }

  private static class Run {
    boolean active;
    boolean stopping;
    String cpu = "";
    String message;
    Object hasData;
    Object triggered;
    String batchId = "";
    String session = "";
    String offsets = "";
    String idle = "";
    Object progress;

    void describe(StringBuilder answer) {
      answer.append(active).append(FIELD).append(stopping).append(FIELD).append(cpu);
      answer.append(FIELD).append(message).append(FIELD).append(hasData);
      answer.append(FIELD).append(triggered).append(FIELD).append(batchId);
      answer.append(FIELD).append(session).append(FIELD).append(offsets);
      answer.append(FIELD).append(idle);
    }
  }
}
