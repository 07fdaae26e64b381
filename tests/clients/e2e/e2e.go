// Package e2e names the tests that `prepare e2e` builds, so that the module has what they need.
package e2e

import _ "k8s.io/kubernetes/test/e2e"
