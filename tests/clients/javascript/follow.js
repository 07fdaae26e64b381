// Keeps a copy of the ConfigMaps that match a selector, prints one line of JSON for everything that the informer tells,
// and the copy once an object named "sentinel" is in it.
//
//     node follow.js SERVER SELECTOR
//
// The informer lists again by itself after a 410, and watches on when a watch ends. When a connection breaks it says so
// and stops; started again, it goes on where it was.
import { CoreV1Api, KubeConfig, makeInformer } from '@kubernetes/client-node';

const [server, selector] = process.argv.slice(2);
const config = new KubeConfig();
config.loadFromOptions({
    // Without skipTLSVerify it refuses plain HTTP.
    clusters: [{ name: 'it', server, skipTLSVerify: true }],
    users: [{ name: 'nobody' }],
    contexts: [{ name: 'it', cluster: 'it', user: 'nobody' }],
    currentContext: 'it',
});
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
// It says so as well when it is stopped.
informer.on('error', () => isComplete || setTimeout(() => informer.start(), 20));
informer.on('add', (object) => {
    if (object.metadata.name === 'sentinel') {
        isComplete = true;
        say({ cache: Object.fromEntries(informer.list().map((held) => [keyOf(held), held.metadata.resourceVersion])) });
        informer.stop();
    }
});
informer.start();
