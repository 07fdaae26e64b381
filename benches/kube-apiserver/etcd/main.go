// The store of the API server, built from its module: Debian's is too old for consistent reads from the watch cache.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
