import java.util.LinkedHashSet;
import java.util.Set;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The processes that monitor one JVM, such as the tasks of one job on a shared cluster.
 *
 * <p>They share no class, so each one publishes a system property.
 */
class Watchers {
  private static final String PREFIX = "querypulse.watcher.";
  private static final String LEFT = "left:";
  private static final String OURS = "ours:";
  private static final Pattern WRITTEN =
      Pattern.compile("(\\d{1,18}) ([^ ]+) ((?:\\d{1,18}|left):[^ ]*)");
  private static final long REFRESH_NANOS = 1000000000L;
  private static final long STALE_NANOS = 10 * REFRESH_NANOS;
  private static final long REMEMBERED_NANOS = 60 * REFRESH_NANOS;
  private static final long ABANDONED_NANOS = 900 * REFRESH_NANOS;

  private final String process;
  private final String name = PREFIX + UUID.randomUUID();
  private final long since = System.nanoTime();
  private final Set sessions = new LinkedHashSet();
  private String known = "";
  private boolean hasLeft;
  private long graceUntil = since;
  private long knownAt = since - REFRESH_NANOS;

  Watchers(String process) {
    this.process = process;
  }

  /** Claims a session's queries for our process. */
  synchronized void claim(String session) {
    if (!session.isEmpty() && sessions.add(session)) {
      knownAt = System.nanoTime() - REFRESH_NANOS;
    }
  }

  /** Renews our property; returns each process's start time and sessions, ours first. */
  synchronized String beat(long now) {
    if (!hasLeft && now - knownAt >= REFRESH_NANOS) {
      if (now - knownAt >= 3 * REFRESH_NANOS) {
        // After a pause of the JVM every process has been silent for long.
        graceUntil = now + STALE_NANOS;
      }
      knownAt = now;
      String ours = since + ":" + String.join(",", sessions);
      System.setProperty(name, now + " " + process + " " + ours);
      known = ours + others(now);
    }
    return known;
  }

  /** Publishes that we have closed and have reported why our queries failed. */
  synchronized void leave() {
    long now = System.nanoTime();
    hasLeft = true;
    System.setProperty(name, now + " " + process + " " + LEFT + String.join(",", sessions));
    knownAt = now - REFRESH_NANOS;
  }

  /** Removes our property: our process is gone. */
  synchronized void forget() {
    System.clearProperty(name);
    knownAt = System.nanoTime() - REFRESH_NANOS;
  }

  private String others(long now) {
    StringBuilder found = new StringBuilder();
    for (Object key : System.getProperties().stringPropertyNames()) {
      String other = (String) key;
      String value = other.startsWith(PREFIX) ? System.getProperty(other) : null;
      if (value != null && !other.equals(name)) {
        Matcher parts = WRITTEN.matcher(value);
        if (parts.matches()) {
          String about = parts.group(3);
          long age = now - Long.parseLong(parts.group(1));
          if (about.startsWith(LEFT) ? age < REMEMBERED_NANOS : isHere(age, now)) {
            found.append(' ').append(shown(parts.group(1), parts.group(2), about));
          } else if (about.startsWith(LEFT)) {
            System.clearProperty(other);
          }
        }
      }
    }
    return found.toString();
  }

  /** For what has closed, adds when it closed, and whether it was in our own process. */
  private String shown(String at, String by, String about) {
    if (!about.startsWith(LEFT)) {
      return about;
    }
    return (by.equals(process) ? OURS : LEFT) + at + ":" + about.substring(LEFT.length());
  }

  private boolean isHere(long age, long now) {
    return age < STALE_NANOS || (now < graceUntil && age < ABANDONED_NANOS);
  }
}
