import java.util.Map;
import java.util.TreeMap;

/** Prints lines of JSON. Keys and versions contain no characters that need escaping. */
final class Out {
  private Out() {}

  static synchronized void event(String event, String key, String version) {
    System.out.println(
        "{\"event\":\"" + event + "\",\"key\":\"" + key + "\",\"rv\":\"" + version + "\"}");
  }

  static synchronized void cache(Map<String, String> held) {
    StringBuilder text = new StringBuilder();
    new TreeMap<>(held)
        .forEach(
            (key, version) ->
                text.append(text.length() == 0 ? "" : ",")
                    .append("\"" + key + "\":\"" + version + "\""));
    System.out.println("{\"cache\":{" + text + "}}");
  }
}
