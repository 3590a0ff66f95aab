import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/** Stands in Spark's list for another listener and times how long that one holds the thread. */
public class Stopwatch extends StreamingQueryListener {
  private final StreamingQueryListener timed;
  private final int settleMillis;
  private final ConcurrentLinkedQueue lines = new ConcurrentLinkedQueue();

  public Stopwatch(StreamingQueryListener timed, int settleMillis) {
    this.timed = timed;
    this.settleMillis = settleMillis;
  }

  public void onQueryStarted(StreamingQueryListener.QueryStartedEvent event) {
    settle();
    long began = System.nanoTime();
    timed.onQueryStarted(event);
    note("started", event.runId() + "", System.nanoTime() - began);
  }

  public void onQueryProgress(StreamingQueryListener.QueryProgressEvent event) {
    settle();
    long began = System.nanoTime();
    timed.onQueryProgress(event);
    long nanos = System.nanoTime() - began;
    note("progress", event.progress().runId() + "/" + event.progress().batchId(), nanos);
  }

  public void onQueryIdle(StreamingQueryListener.QueryIdleEvent event) {
    timed.onQueryIdle(event);
  }

  public void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {
    settle();
    long began = System.nanoTime();
    timed.onQueryTerminated(event);
    note("terminated", event.runId() + "", System.nanoTime() - began);
  }

  /** One line for each callback so far: which callback, which event, how many nanoseconds. */
  public String read() {
    return String.join("\n", lines);
  }

  /** Lets threads that the listener before us woke finish, at nobody's expense. */
  private void settle() {
    try {
      Thread.sleep(settleMillis);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }

  private void note(String callback, String event, long nanos) {
    lines.add(callback + " " + event + " " + nanos);
  }
}
