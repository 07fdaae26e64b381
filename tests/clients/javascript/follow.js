// Keeps a copy of the ConfigMaps that match a selector. Prints one line of JSON for each event of the informer, and the
// copy once it contains an object named "sentinel".
//
//     node follow.js SERVER SELECTOR
//
// The informer lists again by itself after a 410, and resumes when a watch ends. When a connection breaks it reports an
// error and stops; started again, it resumes from its last position. An empty SERVER takes the default configuration.
import { CoreV1Api, KubeConfig, makeInformer } from '@kubernetes/client-node';

const [server, selector] = process.argv.slice(2);
const config = new KubeConfig();
if (server) {
    config.loadFromOptions({
        // Without skipTLSVerify the library refuses plain HTTP.
        clusters: [{ name: 'it', server, skipTLSVerify: true }],
        users: [{ name: 'nobody' }],
        contexts: [{ name: 'it', cluster: 'it', user: 'nobody' }],
        currentContext: 'it',
    });
} else {
    config.loadFromDefault();
}
const api = config.makeApiClient(CoreV1Api);
const list = () => api.listConfigMapForAllNamespaces({ labelSelector: selector });
const informer = makeInformer(config, '/api/v1/configmaps', list, selector);

let isComplete = false;
const say = (line) => console.log(JSON.stringify(line));
const keyOf = ({ metadata }) => `${metadata.namespace}/${metadata.name}`;
const told = (event) => (object) => say({ event, key: keyOf(object), rv: object.metadata.resourceVersion });

informer.on('add', told('ADDED'));
informer.on('update', told('MODIFIED'));
informer.on('delete', told('DELETED'));
// The informer also reports an error when it is stopped.
informer.on('error', () => isComplete || setTimeout(() => informer.start(), 20));
informer.on('add', (object) => {
    if (object.metadata.name === 'sentinel') {
        isComplete = true;
        say({ cache: Object.fromEntries(informer.list().map((held) => [keyOf(held), held.metadata.resourceVersion])) });
        informer.stop();
    }
});
informer.start();
