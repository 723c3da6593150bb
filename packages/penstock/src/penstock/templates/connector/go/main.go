// A connector: a source and a destination that a host starts as a program of its own. What it is called and what it can be told
// stands here, what it does in source.go and destination.go. internal/plugin speaks the protocol; there is nothing to edit in it.
package main

import (
	"placeholder-name/internal/plugin"
)

func main() {
	plugin.Serve(plugin.Connector{
		Name:           "placeholder-name",
		Version:        "v0.1.0",
		Summary:        "Keeps records in a file, and reads them from there.",
		Description:    "A record is a line of JSON. What the destination has written, a source with the same path reads.",
		Author:         "unknown",
		SourceSettings: sourceSettings,
		NewSource:      newSource,

		DestinationSettings: destinationSettings,
		NewDestination:      newDestination,
	})
}
