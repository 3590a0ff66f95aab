import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerInterface;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/** Replaces another listener on its listener-bus queue and times its progress events. */
public class BusStopwatch extends SparkListener {
  private final SparkListenerInterface timed;
  private final ConcurrentLinkedQueue lines = new ConcurrentLinkedQueue();
  private volatile SparkListenerEvent last;

  public BusStopwatch(SparkListenerInterface timed) {
    this.timed = timed;
  }

  public void onOtherEvent(SparkListenerEvent event) {
    long began = System.nanoTime();
    timed.onOtherEvent(event);
    long nanos = System.nanoTime() - began;
    if (event instanceof StreamingQueryListener.QueryProgressEvent) {
      StreamingQueryListener.QueryProgressEvent it =
          (StreamingQueryListener.QueryProgressEvent) event;
      lines.add(it.progress().runId() + "/" + it.progress().batchId() + " " + nanos);
      last = event;
    }
  }

  /** One line for each progress event so far: which one, how many nanoseconds. */
  public String read() {
    return String.join("\n", lines);
  }

  /** The newest progress event. */
  public SparkListenerEvent last() {
    return last;
  }
}
