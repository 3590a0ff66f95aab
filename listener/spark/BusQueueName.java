/**
 * A name for a listener-bus queue that no other process on this JVM uses.
 *
 * <p>Listeners that share a queue share its thread, so they would delay each other. The processes
 * share no class, so each one publishes the name it takes as a system property.
 */
class BusQueueName {
  private static final String FIRST = "querypulse";
  private static final String PREFIX = "querypulse.bus_queue.";

  private String name = "";

  /** The first free name: querypulse, then querypulse-2 and so on; the same until released. */
  synchronized String take() {
    for (int number = 1; name.isEmpty(); number++) {
      String wanted = number == 1 ? FIRST : FIRST + "-" + number;
      if (System.getProperties().putIfAbsent(PREFIX + wanted, "taken") == null) {
        name = wanted;
      }
    }
    return name;
  }

  /** The name that is taken; empty without one. */
  synchronized String get() {
    return name;
  }

  /** Leaves the name to others. */
  synchronized void release() {
    if (!name.isEmpty()) {
      System.clearProperty(PREFIX + name);
      name = "";
    }
  }
}
