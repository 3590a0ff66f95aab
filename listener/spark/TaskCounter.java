import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.TaskInfo;

/**
 * Sums up what finished tasks did, by query and for its newest two batches; tasks.py says what.
 *
 * <p>The sums of a query only grow, also over its restarts and over dropped events: a stage belongs
 * to one query for good. Only those of a query that is gone are given up, when there are too many.
 * Tasks of stages whose submission was not seen count for nobody.
 *
 * <p>The bus queue's thread adds; a thread of Python reads. Times are the driver's, in milliseconds.
 */
class TaskCounter {
  private static final String FIELD = "\u001f";
  private static final String RECORD = "\u001e";
  private static final String QUERY_ID = "sql.streaming.queryId";
  /** MicroBatchExecution.BATCH_ID_KEY. */
  private static final String BATCH_ID = "streaming.sql.batchId";
  private static final int MAX_QUERIES = 1000;
  private static final int MAX_ENDED_STAGES = 1000;
  private static final int MAX_DURATIONS = 512;

  private final JobCounter jobs;
  private final Map queries = new HashMap();
  private final Map stages = new HashMap();
  /** By id, oldest first: killed copies of their tasks end later than they do. */
  private final LinkedHashMap ended = new LinkedHashMap();
  /** Of the next answer: what changes now has it. */
  private long version = 1;

  TaskCounter(JobCounter jobs) {
    this.jobs = jobs;
  }

  void receive(SparkListenerEvent event) {
    if (event instanceof SparkListenerTaskStart) {
      SparkListenerTaskStart start = (SparkListenerTaskStart) event;
      taskStarted(start.stageId(), start.stageAttemptId(), start.taskInfo());
    } else if (event instanceof SparkListenerTaskEnd) {
      taskEnded((SparkListenerTaskEnd) event);
    } else if (event instanceof SparkListenerStageSubmitted) {
      SparkListenerStageSubmitted start = (SparkListenerStageSubmitted) event;
      stageSubmitted(start.stageInfo(), start.properties());
    } else if (event instanceof SparkListenerStageCompleted) {
      StageInfo stage = ((SparkListenerStageCompleted) event).stageInfo();
      stageEnded(stage.stageId(), millis(stage.completionTime()));
    }
  }

  /** A batch of the new run may have the id of one of the run before, and is another one. */
  synchronized void runStarts(String query) {
    Query known = (Query) queries.get(query);
    if (known != null) {
      known.isNewRun = true;
    }
  }

  /** Spark dropped events: of the stages that run, it is only known whose they are. */
  synchronized void loseTrack() {
    Iterator open = new HashSet(stages.values()).iterator();
    while (open.hasNext()) {
      Stage stage = (Stage) open.next();
      if (stage.batch != null) {
        stage.batch.waitsSince = 0;
      }
      stageEnded(stage.id, 0);
    }
  }

  /**
   * The version of this answer, then a record for each query that has changed since an earlier one,
   * and for the jobs without a query: their sums, and for each batch its id, sums and the
   * milliseconds that it waited, and stage, tasks, median, longest, partition and host of a spread.
   */
  synchronized String text(long since) {
    long now = System.currentTimeMillis();
    version++;
    StringBuilder answer = new StringBuilder();
    answer.append(version).append(RECORD);
    Iterator entries = queries.entrySet().iterator();
    while (entries.hasNext()) {
      Map.Entry entry = (Map.Entry) entries.next();
      Query query = (Query) entry.getValue();
      if (query.changed >= since || (query.newest != null && query.newest.waitsSince != 0)) {
        answer.append(plain((String) entry.getKey()));
        query.sums.describe(answer);
        if (query.before != null) {
          query.before.describe(answer, now);
        }
        if (query.newest != null) {
          query.newest.describe(answer, now);
        }
        answer.append(RECORD);
      }
    }
    return answer.toString();
  }

  private synchronized void stageSubmitted(StageInfo info, Properties properties) {
    stageEnded(info.stageId(), millis(info.submissionTime()));
    ended.remove(Integer.valueOf(info.stageId()));
    Query query = queryOf(properties);
    Stage stage = new Stage(info, query, query.batchOf(properties));
    stages.put(Integer.valueOf(stage.id), stage);
    query.stages++;
    query.changed = version;
    if (stage.batch != null) {
      stage.batch.stages.add(stage);
      stage.batch.stagesWaiting++;
      stage.batch.followWait(millis(info.submissionTime()));
    }
  }

  private synchronized void taskStarted(int stageId, int attempt, TaskInfo task) {
    Stage stage = (Stage) stages.get(Integer.valueOf(stageId));
    if (stage == null || stage.attempt != attempt) {
      return;
    }
    stage.tasksRunning++;
    if (stage.batch != null) {
      stage.batch.tasksRunning++;
      if (!stage.hasBegun) {
        stage.batch.stagesWaiting--;
      }
      stage.batch.followWait(task.launchTime());
    }
    stage.hasBegun = true;
  }

  private synchronized void taskEnded(SparkListenerTaskEnd end) {
    Integer id = Integer.valueOf(end.stageId());
    Stage open = (Stage) stages.get(id);
    Stage stage = open == null ? (Stage) ended.get(id) : open;
    if (stage == null) {
      return;
    }
    stage.query.changed = version;
    stage.query.sums.add(end.taskMetrics());
    if (stage.batch != null) {
      stage.batch.sums.add(end.taskMetrics());
    }
    TaskInfo task = end.taskInfo();
    boolean isNewest = open != null && open.attempt == end.stageAttemptId();
    if (!isNewest || open.batch == null || task == null) {
      return;
    }
    if (open.tasksRunning > 0) {
      open.tasksRunning--;
      open.batch.tasksRunning--;
      open.batch.followWait(task.finishTime());
    }
    if (task.successful()) {
      open.took(task);
    }
  }

  private synchronized void stageEnded(int id, long at) {
    Stage stage = (Stage) stages.remove(Integer.valueOf(id));
    if (stage == null) {
      return;
    }
    stage.query.stages--;
    if (stage.batch != null) {
      stage.batch.end(stage, at);
    }
    stage.durations = null;
    ended.put(Integer.valueOf(id), stage);
    if (ended.size() > MAX_ENDED_STAGES) {
      Iterator oldest = ended.keySet().iterator();
      oldest.next();
      oldest.remove();
    }
  }

  private Query queryOf(Properties properties) {
    String id = properties == null ? null : properties.getProperty(QUERY_ID);
    String key = id == null ? "" : id;
    Query query = (Query) queries.get(key);
    if (query == null) {
      if (queries.size() >= MAX_QUERIES) {
        forgetGone();
      }
      query = new Query(!key.isEmpty());
      queries.put(key, query);
    }
    return query;
  }

  private void forgetGone() {
    Iterator entries = queries.entrySet().iterator();
    while (entries.hasNext()) {
      Map.Entry entry = (Map.Entry) entries.next();
      String id = (String) entry.getKey();
      if (!id.isEmpty() && ((Query) entry.getValue()).stages == 0 && !jobs.isAlive(id)) {
        entries.remove();
      }
    }
  }

  private static long millis(scala.Option time) {
    return time.isDefined() ? ((Long) time.get()).longValue() : System.currentTimeMillis();
  }

  /** The text without our own marks. */
  static String plain(String text) {
    return text == null ? "" : text.replace(FIELD, " ").replace(RECORD, " ");
  }

  private static class Query {
    final boolean hasBatches;
    final Sums sums = new Sums();
    Batch before;
    Batch newest;
    boolean isNewRun;
    int stages;
    long changed;

    Query(boolean hasBatches) {
      this.hasBatches = hasBatches;
    }

    /**
     * The batch of a stage; null if that is none of the newest two. Threads that were created in a
     * batch keep its id for as long as they live.
     */
    Batch batchOf(Properties properties) {
      String text = hasBatches ? properties.getProperty(BATCH_ID) : null;
      long id;
      try {
        id = text == null ? -1 : Long.parseLong(text);
      } catch (NumberFormatException foreign) {
        return null;
      }
      if (id < 0) {
        return null;
      }
      if (newest != null && !isNewRun && id <= newest.id) {
        return id == newest.id ? newest : before != null && id == before.id ? before : null;
      }
      if (newest != null && newest.id < id) {
        before = newest;
      } else if (before != null && before.id >= id) {
        before = null;
      }
      isNewRun = false;
      newest = new Batch(id);
      return newest;
    }
  }

  /** Sums over tasks, in the units of TaskMetrics. */
  private static class Sums {
    private long tasks;
    private long runMillis;
    private long cpuNanos;
    private long gcMillis;
    private long shuffleWaitMillis;
    private long spilledBytes;
    private long shuffleReadBytes;
    private long shuffleWrittenBytes;

    /** Adds a task; one that failed may have no metrics. */
    void add(TaskMetrics task) {
      tasks++;
      if (task != null) {
        runMillis += Math.max(0, task.executorRunTime());
        cpuNanos += Math.max(0, task.executorCpuTime());
        gcMillis += Math.max(0, task.jvmGCTime());
        shuffleWaitMillis += Math.max(0, task.shuffleReadMetrics().fetchWaitTime());
        spilledBytes += Math.max(0, task.diskBytesSpilled());
        shuffleReadBytes += Math.max(0, task.shuffleReadMetrics().totalBytesRead());
        shuffleWrittenBytes += Math.max(0, task.shuffleWriteMetrics().bytesWritten());
      }
    }

    void describe(StringBuilder answer) {
      answer.append(FIELD).append(tasks).append(FIELD).append(runMillis);
      answer.append(FIELD).append(cpuNanos).append(FIELD).append(gcMillis);
      answer.append(FIELD).append(shuffleWaitMillis).append(FIELD).append(spilledBytes);
      answer.append(FIELD).append(shuffleReadBytes).append(FIELD).append(shuffleWrittenBytes);
    }
  }

  private static class Batch {
    final long id;
    final Sums sums = new Sums();
    /** Those that run. */
    final Set stages = new HashSet();
    int stagesWaiting;
    int tasksRunning;
    long waitsSince;
    private long waitedMillis;
    private Stage widest;

    Batch(long id) {
      this.id = id;
    }

    /** A batch waits while none of its tasks runs and a stage of it has not begun. */
    void followWait(long at) {
      boolean waits = stagesWaiting > 0 && tasksRunning == 0;
      if (waits && waitsSince == 0) {
        waitsSince = at;
      } else if (!waits && waitsSince != 0) {
        waitedMillis += Math.max(0, at - waitsSince);
        waitsSince = 0;
      }
    }

    void end(Stage stage, long at) {
      stages.remove(stage);
      tasksRunning -= stage.tasksRunning;
      stagesWaiting -= stage.hasBegun ? 0 : 1;
      followWait(at);
      stage.measure();
      widest = stage.isWiderThan(widest) ? stage : widest;
    }

    void describe(StringBuilder answer, long now) {
      answer.append(FIELD).append(id);
      sums.describe(answer);
      long waits = waitsSince == 0 ? 0 : Math.max(0, now - waitsSince);
      answer.append(FIELD).append(waitedMillis + waits);
      Stage shown = widest;
      Iterator running = stages.iterator();
      while (running.hasNext()) {
        Stage stage = (Stage) running.next();
        stage.measure();
        shown = stage.isWiderThan(shown) ? stage : shown;
      }
      if (shown == null) {
        answer.append(FIELD).append(FIELD).append(FIELD).append(FIELD).append(FIELD).append(FIELD);
      } else {
        answer.append(FIELD).append(shown.id).append(FIELD).append(shown.tasks);
        answer.append(FIELD).append(shown.median).append(FIELD).append(shown.longest);
        answer.append(FIELD).append(shown.partition).append(FIELD).append(plain(shown.host));
      }
    }
  }

  private static class Stage {
    final int id;
    final int attempt;
    final Query query;
    final Batch batch;
    boolean hasBegun;
    int tasksRunning;
    /** Of the tasks that have succeeded: all, or each second, fourth, ... of many. */
    int[] durations = new int[8];
    private int step = 1;
    private int kept;
    int tasks;
    long median;
    long longest = -1;
    int partition;
    String host;

    Stage(StageInfo info, Query query, Batch batch) {
      id = info.stageId();
      attempt = info.attemptNumber();
      this.query = query;
      this.batch = batch;
    }

    void took(TaskInfo task) {
      long millis = Math.max(0, task.finishTime() - task.launchTime());
      if (millis > longest) {
        longest = millis;
        partition = task.partitionId();
        host = task.host();
      }
      tasks++;
      if (tasks % step == 0 && kept == MAX_DURATIONS) {
        step *= 2;
        kept /= 2;
        for (int i = 0; i < kept; i++) {
          durations[i] = durations[2 * i + 1];
        }
      }
      if (tasks % step == 0) {
        if (kept == durations.length) {
          durations = Arrays.copyOf(durations, 2 * kept);
        }
        durations[kept++] = (int) Math.min(Integer.MAX_VALUE, millis);
      }
    }

    void measure() {
      if (durations != null && kept > 0) {
        int[] sorted = Arrays.copyOf(durations, kept);
        Arrays.sort(sorted);
        median = (sorted[(kept - 1) / 2] + (long) sorted[kept / 2]) / 2;
      }
    }

    boolean isWiderThan(Stage other) {
      return longest > median && (other == null || longest - median > other.longest - other.median);
    }
  }
}
