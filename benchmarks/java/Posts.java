import org.apache.spark.scheduler.LiveListenerBus;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;

/** Posts an event to Spark's listener bus, as a query's own thread does, and times each post. */
public class Posts {
  /** Posts before the first that counts: the queues' threads have started then. */
  private static final int UNCOUNTED = 3;

  private final SparkListener empty = new SparkListener() {};

  /** A listener that does nothing. */
  public SparkListener empty() {
    return empty;
  }

  /** Nanoseconds of each post; a pause before each lets every queue's thread fall asleep. */
  public String time(LiveListenerBus bus, SparkListenerEvent event, int posts, long pauseMillis)
      throws InterruptedException {
    StringBuilder found = new StringBuilder();
    for (int number = -UNCOUNTED; number < posts; number++) {
      Thread.sleep(pauseMillis);
      long began = System.nanoTime();
      bus.post(event);
      long nanos = System.nanoTime() - began;
      if (number >= 0) {
        found.append(nanos).append(' ');
      }
    }
    return found.toString();
  }
}
