import java.util.AbstractMap;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/**
 * All active runs of the JVM: a StreamExecution by query id.
 *
 * <p>Usually these are SharedState.activeStreamingQueries. The sessions of a Spark Connect service
 * may have a SharedState of their own.
 */
class Executions extends AbstractMap {
  private final Map own;
  private final ConnectSessions sessions;
  /** Those of the other SharedState; null without one. */
  private volatile Map others;

  Executions(Map own, ConnectSessions sessions) {
    this.own = own;
    this.sessions = sessions;
  }

  /** Looks for another SharedState, which may come at any time. */
  void refresh() {
    Map found = sessions.executions();
    others = found == own ? null : found;
  }

  public Object get(Object queryId) {
    Object execution = own.get(queryId);
    Map more = others;
    return execution == null && more != null ? more.get(queryId) : execution;
  }

  public boolean containsKey(Object queryId) {
    return get(queryId) != null;
  }

  public Set entrySet() {
    Map more = others;
    if (more == null) {
      return own.entrySet();
    }
    Map all = new HashMap(more);
    all.putAll(own);
    return all.entrySet();
  }
}
