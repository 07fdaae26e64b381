import io.kubernetes.client.informer.ResourceEventHandler;
import io.kubernetes.client.informer.SharedIndexInformer;
import io.kubernetes.client.informer.SharedInformerFactory;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.models.V1ConfigMap;
import io.kubernetes.client.openapi.models.V1ConfigMapList;
import io.kubernetes.client.util.CallGeneratorParams;
import io.kubernetes.client.util.Config;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;

/**
 * Keeps a copy of the ConfigMaps that match a selector in client-java's shared informer. Prints one line of JSON for
 * each call of its handler, and the copy once it contains an object named "sentinel".
 *
 * <p>Arguments: the server, the selector. An empty server takes the default configuration. The informer lists again by
 * itself after a broken connection and after a 410.
 */
public final class ClientJava {
  private ClientJava() {}

  public static void main(String[] arguments) throws Exception {
    var client = arguments[0].isEmpty() ? Config.defaultClient() : Config.fromUrl(arguments[0], false);
    // Watches can be silent for longer than the default timeout of ten seconds.
    client.setReadTimeout(0);
    var maps = new CoreV1Api(client);
    var factory = new SharedInformerFactory(client);
    var complete = new CountDownLatch(1);
    SharedIndexInformer<V1ConfigMap> informer =
        factory.sharedIndexInformerFor(
            (CallGeneratorParams params) ->
                maps.listConfigMapForAllNamespaces()
                    .labelSelector(arguments[1])
                    .resourceVersion(params.resourceVersion)
                    .timeoutSeconds(params.timeoutSeconds)
                    .watch(params.watch)
                    .buildCall(null),
            V1ConfigMap.class,
            V1ConfigMapList.class);
    informer.addEventHandler(new Telling(complete));
    factory.startAllRegisteredInformers();
    complete.await();
    Map<String, String> held = new TreeMap<>();
    informer.getIndexer().list().forEach(object -> held.put(keyOf(object), versionOf(object)));
    Out.cache(held);
    System.exit(0);
  }

  private static String keyOf(V1ConfigMap object) {
    return object.getMetadata().getNamespace() + "/" + object.getMetadata().getName();
  }

  private static String versionOf(V1ConfigMap object) {
    return object.getMetadata().getResourceVersion();
  }

  private record Telling(CountDownLatch complete) implements ResourceEventHandler<V1ConfigMap> {
    @Override
    public void onAdd(V1ConfigMap object) {
      Out.event("ADDED", keyOf(object), versionOf(object));
      if (object.getMetadata().getName().equals("sentinel")) {
        complete.countDown();
      }
    }

    @Override
    public void onUpdate(V1ConfigMap before, V1ConfigMap object) {
      Out.event("MODIFIED", keyOf(object), versionOf(object));
    }

    @Override
    public void onDelete(V1ConfigMap object, boolean stateIsUnknown) {
      Out.event("DELETED", keyOf(object), versionOf(object));
    }
  }
}
