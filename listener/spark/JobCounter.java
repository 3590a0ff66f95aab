import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Counts jobs and tasks by query; only the bus queue's thread changes the counts.
 *
 * <p>It does not count jobs and stages that started before it began to count.
 */
class JobCounter {
  private static final String FIELD = "\u001f";
  private static final String RECORD = "\u001e";
  private static final String QUERY_ID = "sql.streaming.queryId";
  private static final int MAX_JOBS = 100000;
  private static final int MAX_QUERIES = 1000;

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
    stages.put(Integer.valueOf(stage), new Stage(of(properties)));
  }

  void stageEnded(int stage) {
    Stage ended = (Stage) stages.remove(Integer.valueOf(stage));
    if (ended != null) {
      ended.counts.tasksActive -= ended.tasksActive;
    }
  }

  void taskStarted(int stage) {
    Stage known = (Stage) stages.get(Integer.valueOf(stage));
    if (known != null) {
      known.tasksActive++;
      known.counts.tasksActive++;
    }
  }

  void taskEnded(int stage, boolean succeeded) {
    Stage known = (Stage) stages.get(Integer.valueOf(stage));
    if (known != null) {
      known.tasksActive--;
      known.counts.tasksActive--;
      if (succeeded) {
        known.counts.tasksCompleted++;
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
      answer.append(FIELD).append(counts.tasksActive).append(RECORD);
    }
    return answer.toString();
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
  }

  private static class Stage {
    final Counts counts;
    int tasksActive;

    Stage(Counts counts) {
      this.counts = counts;
    }
  }
}
