import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;

/**
 * Keeps a copy of the ConfigMaps that match a selector in fabric8's shared informer. Prints one line of JSON for each
 * call of its handler, and the copy once it contains an object named "sentinel".
 *
 * <p>Arguments: "websocket" or "http" for watches, the server, the selector. An empty server takes the default
 * configuration. The informer resumes by itself when a connection breaks, and lists again after a 410.
 */
public final class Fabric8 {
  private Fabric8() {}

  public static void main(String[] arguments) throws Exception {
    var defaults = new ConfigBuilder();
    var config =
        (arguments[1].isEmpty() ? defaults : defaults.withMasterUrl(arguments[1]))
            .withOnlyHttpWatches(arguments[0].equals("http"))
            .withWatchReconnectInterval(20)
            .build();
    String[] selector = arguments[2].split("=");
    var complete = new CountDownLatch(1);
    try (KubernetesClient client = new KubernetesClientBuilder().withConfig(config).build();
        SharedIndexInformer<ConfigMap> informer =
            client
                .configMaps()
                .inAnyNamespace()
                .withLabel(selector[0], selector[1])
                .inform(new Telling(complete))) {
      complete.await();
      Map<String, String> held = new TreeMap<>();
      informer.getStore().list().forEach(object -> held.put(keyOf(object), versionOf(object)));
      Out.cache(held);
    }
    System.exit(0);
  }

  private static String keyOf(ConfigMap object) {
    return object.getMetadata().getNamespace() + "/" + object.getMetadata().getName();
  }

  private static String versionOf(ConfigMap object) {
    return object.getMetadata().getResourceVersion();
  }

  private record Telling(CountDownLatch complete) implements ResourceEventHandler<ConfigMap> {
    @Override
    public void onAdd(ConfigMap object) {
      Out.event("ADDED", keyOf(object), versionOf(object));
      if (object.getMetadata().getName().equals("sentinel")) {
        complete.countDown();
      }
    }

    @Override
    public void onUpdate(ConfigMap before, ConfigMap object) {
      Out.event("MODIFIED", keyOf(object), versionOf(object));
    }

    @Override
    public void onDelete(ConfigMap object, boolean stateIsUnknown) {
      Out.event("DELETED", keyOf(object), versionOf(object));
    }
  }
}
