import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.TaskInfo;

/**
 * Counts jobs and tasks by query, and keeps which tasks run, and which executors were lost; only the
 * bus queue's thread changes them.
 *
 * <p>A task that finishes again and again, because its results are lost with their executors, counts
 * only {@code MAX_REPEATS} times: then it makes no progress.
 *
 * <p>It does not count jobs and stages that started before it began to count.
 */
class JobCounter {
  private static final String FIELD = "\u001f";
  private static final String RECORD = "\u001e";
  private static final String QUERY_ID = "sql.streaming.queryId";
  private static final int MAX_QUERIES = 1000;
  private static final int MAX_DURATIONS = 101;
  private static final int MAX_REPEATS = 3;
  private static final int MAX_LOSSES = 100;
  private static final int MAX_REASON = 4096;

  /** ExecutorKilled and ExecutorAllocationManager: what dynamic allocation removes in order. */
  private static final String KILLED = "Executor killed by driver";
  private static final String SCALED_DOWN = "spark scale down";

  private final Map executions;
  private final Map byQuery = new ConcurrentHashMap();
  private final Map jobs = new HashMap();
  private final Map stages = new HashMap();
  private final Map finished = new HashMap();
  private final ArrayDeque losses = new ArrayDeque();
  private String lossReason = "";
  private volatile int firstJob = Integer.MAX_VALUE;
  private volatile boolean lostTrack;
  final TaskCounter tasks = new TaskCounter(this);

  JobCounter(Map executions) {
    this.executions = executions;
  }

  void receive(SparkListenerEvent event) {
    if (event instanceof SparkListenerTaskStart) {
      SparkListenerTaskStart start = (SparkListenerTaskStart) event;
      Stage stage = (Stage) stages.get(Integer.valueOf(start.stageId()));
      if (stage != null) {
        stage.tasksActive++;
        stage.counts.tasksActive++;
        Long task = Long.valueOf(start.taskInfo().taskId());
        stage.counts.running.put(task, new Task(stage, start.taskInfo()));
      }
    } else if (event instanceof SparkListenerTaskEnd) {
      SparkListenerTaskEnd end = (SparkListenerTaskEnd) event;
      taskEnded((Stage) stages.get(Integer.valueOf(end.stageId())), end.taskInfo());
    } else if (event instanceof SparkListenerStageSubmitted) {
      SparkListenerStageSubmitted start = (SparkListenerStageSubmitted) event;
      forgetLostTrack();
      Integer stage = Integer.valueOf(start.stageInfo().stageId());
      stageEnded(stage);
      Finished before = (Finished) finished.get(stage);
      if (before == null) {
        before = new Finished();
        finished.put(stage, before);
      }
      stages.put(stage, new Stage(stage.intValue(), of(start.properties()), before));
    } else if (event instanceof SparkListenerStageCompleted) {
      stageEnded(Integer.valueOf(((SparkListenerStageCompleted) event).stageInfo().stageId()));
    } else if (event instanceof SparkListenerJobStart) {
      jobStarted((SparkListenerJobStart) event);
    } else if (event instanceof SparkListenerJobEnd) {
      forgetLostTrack();
      Job job = (Job) jobs.remove(Integer.valueOf(((SparkListenerJobEnd) event).jobId()));
      if (job != null) {
        job.counts.jobsActive--;
        finished.keySet().removeAll(job.stages);
      }
    } else if (event instanceof SparkListenerExecutorRemoved) {
      executorRemoved(((SparkListenerExecutorRemoved) event).reason());
    }
    tasks.receive(event);
  }

  private void executorRemoved(String reason) {
    String why = reason == null ? "" : reason;
    if (why.startsWith(KILLED) || why.endsWith(SCALED_DOWN)) {
      return;
    }
    synchronized (losses) {
      losses.addLast(Long.valueOf(System.nanoTime()));
      if (losses.size() > MAX_LOSSES) {
        losses.removeFirst();
      }
      why = why.length() > MAX_REASON ? why.substring(0, MAX_REASON) : why;
      lossReason = TaskCounter.plain(why);
    }
  }

  /** Spark dropped events, so the active jobs and tasks are unknown from here on. */
  void loseTrack() {
    lostTrack = true;
    tasks.loseTrack();
  }

  private void jobStarted(SparkListenerJobStart start) {
    forgetLostTrack();
    if (byQuery.size() >= MAX_QUERIES) {
      text();
    }
    firstJob = Math.min(firstJob, start.jobId());
    Counts counts = of(start.properties());
    jobs.put(Integer.valueOf(start.jobId()), new Job(counts, start));
    counts.jobsStarted++;
    counts.jobsActive++;
  }

  private void stageEnded(Integer stage) {
    Stage ended = (Stage) stages.remove(stage);
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

  private void taskEnded(Stage stage, TaskInfo info) {
    boolean known = stage != null && info != null;
    Object task = known ? stage.counts.running.remove(Long.valueOf(info.taskId())) : null;
    // Not a task of an earlier attempt of the stage.
    if (task != null) {
      stage.tasksActive--;
      stage.counts.tasksActive--;
      if (info.successful()) {
        if (stage.finished.isNews(info.partitionId())) {
          stage.counts.tasksCompleted++;
        }
        stage.took(System.nanoTime() - ((Task) task).startedAt);
      }
    }
  }

  /** The first counted job and the lost executors, then the counts of each query. */
  String text() {
    StringBuilder answer = new StringBuilder();
    answer.append(lostTrack ? Integer.MAX_VALUE : firstJob);
    describeLosses(answer);
    answer.append(RECORD);
    if (lostTrack) {
      return answer.toString();
    }
    Iterator entries = byQuery.entrySet().iterator();
    while (entries.hasNext()) {
      Map.Entry entry = (Map.Entry) entries.next();
      String query = (String) entry.getKey();
      Counts counts = (Counts) entry.getValue();
      if (counts.jobsActive == 0 && !query.isEmpty() && !isAlive(query)) {
        entries.remove();
        continue;
      }
      answer.append(TaskCounter.plain(query)).append(FIELD).append(counts.jobsStarted);
      answer.append(FIELD).append(counts.jobsActive).append(FIELD).append(counts.tasksCompleted);
      answer.append(FIELD).append(counts.tasksActive);
      describeLongest(counts, answer);
      answer.append(RECORD);
    }
    return answer.toString();
  }

  /** Why the last executor was lost, and how many nanoseconds ago each was. */
  private void describeLosses(StringBuilder answer) {
    synchronized (losses) {
      if (losses.isEmpty()) {
        return;
      }
      answer.append(FIELD).append(lossReason);
      Iterator times = losses.iterator();
      while (times.hasNext()) {
        long at = ((Long) times.next()).longValue();
        answer.append(FIELD).append(System.nanoTime() - at);
      }
    }
  }

  /**
   * The running task that began first, how long tasks of its stage usually take, and how many others
   * have run at least half as long.
   */
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
      long now = System.nanoTime();
      int asLong = 0;
      for (running = counts.running.values().iterator(); running.hasNext(); ) {
        Task task = (Task) running.next();
        asLong += task != longest && 2 * (now - task.startedAt) >= now - longest.startedAt ? 1 : 0;
      }
      answer.append(FIELD).append(longest.stage.id).append(FIELD).append(longest.partition);
      answer.append(FIELD).append(TaskCounter.plain(longest.host));
      answer.append(FIELD).append(now - longest.startedAt);
      answer.append(FIELD).append(longest.stage.median()).append(FIELD).append(asLong);
    }
  }

  boolean isAlive(String query) {
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

  /** Begins to count again after events were lost: the active jobs and tasks are unknown. */
  private void forgetLostTrack() {
    if (lostTrack) {
      firstJob = Integer.MAX_VALUE;
      jobs.clear();
      stages.clear();
      finished.clear();
      byQuery.clear();
      lostTrack = false;
    }
  }

  private static class Counts {
    volatile int jobsStarted;
    volatile int jobsActive;
    volatile int tasksCompleted;
    volatile int tasksActive;
    final Map running = new ConcurrentHashMap();
  }

  private static class Job {
    final Counts counts;
    final Set stages = new HashSet();

    Job(Counts counts, SparkListenerJobStart start) {
      this.counts = counts;
      scala.collection.Iterator ids = start.stageIds().iterator();
      while (ids.hasNext()) {
        stages.add(ids.next());
      }
    }
  }

  /** How often each task of a stage has finished, over all attempts of the stage. */
  private static class Finished {
    private byte[] times = new byte[16];

    boolean isNews(int partition) {
      if (partition < 0) {
        return true;
      }
      if (partition >= times.length) {
        times = Arrays.copyOf(times, Math.max(partition + 1, 2 * times.length));
      }
      if (times[partition] == MAX_REPEATS) {
        return false;
      }
      times[partition]++;
      return true;
    }
  }

  private static class Task {
    final Stage stage;
    final int partition;
    final String host;
    final long startedAt = System.nanoTime();

    Task(Stage stage, TaskInfo info) {
      this.stage = stage;
      partition = info.partitionId();
      host = info.host();
    }
  }

  private static class Stage {
    final int id;
    final Counts counts;
    final Finished finished;
    int tasksActive;
    private final long[] durations = new long[MAX_DURATIONS];
    private int ended;

    Stage(int id, Counts counts, Finished finished) {
      this.id = id;
      this.counts = counts;
      this.finished = finished;
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
