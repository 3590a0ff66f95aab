import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Counts jobs and tasks by query, and keeps which tasks run; only the bus queue's thread changes them.
 *
 * <p>It does not count jobs and stages that started before it began to count.
 */
class JobCounter {
  private static final String FIELD = "\u001f";
  private static final String RECORD = "\u001e";
  private static final String QUERY_ID = "sql.streaming.queryId";
  private static final int MAX_JOBS = 100000;
  private static final int MAX_QUERIES = 1000;
  private static final int MAX_DURATIONS = 101;

  private final Map executions;
  private final Map byQuery = new ConcurrentHashMap();
  private final Map jobs = new HashMap();
  private final Map stages = new HashMap();
  private volatile int firstJob = Integer.MAX_VALUE;
  private volatile boolean lostTrack;

  JobCounter(Map executions) {
    this.executions = executions;
  }

  void jobStarted(int job, Properties properties) {
    forgetLostTrack();
    if (jobs.size() >= MAX_JOBS) {
      forget();
    }
    if (byQuery.size() >= MAX_QUERIES) {
      text();
    }
    firstJob = Math.min(firstJob, job);
    Counts counts = of(properties);
    jobs.put(Integer.valueOf(job), counts);
    counts.jobsStarted++;
    counts.jobsActive++;
  }

  /** Spark dropped events, so the active jobs and tasks are unknown from here on. */
  void loseTrack() {
    lostTrack = true;
  }

  void jobEnded(int job) {
    forgetLostTrack();
    Counts counts = (Counts) jobs.remove(Integer.valueOf(job));
    if (counts != null) {
      counts.jobsActive--;
    }
  }

  void stageStarted(int stage, Properties properties) {
    forgetLostTrack();
    stageEnded(stage);
    stages.put(Integer.valueOf(stage), new Stage(stage, of(properties)));
  }

  void stageEnded(int stage) {
    Stage ended = (Stage) stages.remove(Integer.valueOf(stage));
    if (ended != null) {
      ended.counts.tasksActive -= ended.tasksActive;
      Iterator running = ended.counts.running.values().iterator();
      while (running.hasNext()) {
        if (((Task) running.next()).stage == ended) {
          running.remove();
        }
      }
    }
  }

  void taskStarted(int stage, long task, int partition, String host) {
    Stage known = (Stage) stages.get(Integer.valueOf(stage));
    if (known != null) {
      known.tasksActive++;
      known.counts.tasksActive++;
      known.counts.running.put(Long.valueOf(task), new Task(known, partition, host));
    }
  }

  void taskEnded(int stage, long task, boolean succeeded) {
    Stage known = (Stage) stages.get(Integer.valueOf(stage));
    Task ended = known == null ? null : (Task) known.counts.running.remove(Long.valueOf(task));
    // Not a task of an earlier attempt of the stage.
    if (ended != null) {
      known.tasksActive--;
      known.counts.tasksActive--;
      if (succeeded) {
        known.counts.tasksCompleted++;
        known.took(System.nanoTime() - ended.startedAt);
      }
    }
  }

  /** The first counted job, then the counts of each query. */
  String text() {
    if (lostTrack) {
      return Integer.MAX_VALUE + RECORD;
    }
    StringBuilder answer = new StringBuilder();
    answer.append(firstJob).append(RECORD);
    Iterator entries = byQuery.entrySet().iterator();
    while (entries.hasNext()) {
      Map.Entry entry = (Map.Entry) entries.next();
      String query = (String) entry.getKey();
      Counts counts = (Counts) entry.getValue();
      if (counts.jobsActive == 0 && !query.isEmpty() && !isAlive(query)) {
        entries.remove();
        continue;
      }
      answer.append(query).append(FIELD).append(counts.jobsStarted).append(FIELD);
      answer.append(counts.jobsActive).append(FIELD).append(counts.tasksCompleted);
      answer.append(FIELD).append(counts.tasksActive);
      describeLongest(counts, answer);
      answer.append(RECORD);
    }
    return answer.toString();
  }

  /** The running task that began first, and how long tasks of its stage usually take. */
  private static void describeLongest(Counts counts, StringBuilder answer) {
    Task longest = null;
    Iterator running = counts.running.values().iterator();
    while (running.hasNext()) {
      Task task = (Task) running.next();
      if (longest == null || task.startedAt < longest.startedAt) {
        longest = task;
      }
    }
    if (longest != null) {
      answer.append(FIELD).append(longest.stage.id).append(FIELD).append(longest.partition);
      answer.append(FIELD).append(longest.host.replace(FIELD, " ").replace(RECORD, " "));
      answer.append(FIELD).append(System.nanoTime() - longest.startedAt);
      answer.append(FIELD).append(longest.stage.median());
    }
  }

  private boolean isAlive(String query) {
    try {
      return executions.containsKey(UUID.fromString(query));
    } catch (IllegalArgumentException foreign) {
      return false;
    }
  }

  private Counts of(Properties properties) {
    String query = properties == null ? null : properties.getProperty(QUERY_ID);
    String key = query == null ? "" : query;
    Counts counts = (Counts) byQuery.get(key);
    if (counts == null) {
      counts = new Counts();
      byQuery.put(key, counts);
    }
    return counts;
  }

  private void forgetLostTrack() {
    if (lostTrack) {
      forget();
      lostTrack = false;
    }
  }

  /** Begins to count again: events were lost, so the active jobs and tasks are unknown. */
  private void forget() {
    firstJob = Integer.MAX_VALUE;
    jobs.clear();
    stages.clear();
    byQuery.clear();
  }

  private static class Counts {
    volatile int jobsStarted;
    volatile int jobsActive;
    volatile int tasksCompleted;
    volatile int tasksActive;
    final Map running = new ConcurrentHashMap();
  }

  private static class Task {
    final Stage stage;
    final int partition;
    final String host;
    final long startedAt = System.nanoTime();

    Task(Stage stage, int partition, String host) {
      this.stage = stage;
      this.partition = partition;
      this.host = host;
    }
  }

  private static class Stage {
    final int id;
    final Counts counts;
    int tasksActive;
    private final long[] durations = new long[MAX_DURATIONS];
    private int ended;

    Stage(int id, Counts counts) {
      this.id = id;
      this.counts = counts;
    }

    synchronized void took(long nanoseconds) {
      durations[ended++ % MAX_DURATIONS] = nanoseconds;
    }

    /** Of the last tasks that ended, in nanoseconds; empty without one. */
    synchronized String median() {
      long[] known = Arrays.copyOf(durations, Math.min(ended, MAX_DURATIONS));
      Arrays.sort(known);
      return known.length == 0 ? "" : String.valueOf(known[known.length / 2]);
    }
  }
}
