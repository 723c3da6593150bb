package plugin

import (
	"context"
	"errors"
	"math"
	"os"
	"os/signal"
	"strconv"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

const (
	cookie      = "CONDUIT_PLUGIN_MAGIC_COOKIE"
	cookieValue = "204e8e812c3a1bb73b838928c575b42a105dd2e9aa449be481bc4590486df53f"
	logLevel    = "CONDUIT_CONNECTOR_LOG_LEVEL"
	maxMessage  = "CONDUIT_CONNECTOR_MAX_RECEIVE_RECORD_SIZE"

	defaultMaxMessage = 4 << 20
)

// Serve answers the host until it says that this is the end. The best dialect that both know is spoken.
func Serve(connector Connector) {
	signal.Ignore(os.Interrupt) // Ctrl-C is for the host; go-plugin sees to it only after the handshake
	log := hclog.New(&hclog.LoggerOptions{
		Name: connector.Name, Level: level(os.Getenv(logLevel)), Output: os.Stderr, JSONFormat: true,
	})
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{MagicCookieKey: cookie, MagicCookieValue: cookieValue},
		VersionedPlugins: map[int]goplugin.PluginSet{
			1: {"connector": services{register: func(server *grpc.Server) { registerFirst(server, connector, log) }}},
			2: {"connector": services{register: func(server *grpc.Server) { registerSecond(server, connector, log) }}},
		},
		Logger: log,
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, grpc.MaxRecvMsgSize(largest(os.Getenv(maxMessage))))...)
		},
	})
}

// services is what go-plugin calls a plugin: everything of one dialect.
type services struct {
	goplugin.NetRPCUnsupportedPlugin
	register func(server *grpc.Server)
}

func (s services) GRPCServer(_ *goplugin.GRPCBroker, server *grpc.Server) error {
	s.register(server)
	return nil
}

func (services) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this program is a plugin, not a host")
}

// level understands the names that hosts use. One that is unknown hides nothing.
func level(name string) hclog.Level {
	switch name {
	case "":
		return hclog.Info
	case "fatal", "panic":
		return hclog.Error
	case "disabled":
		return hclog.Off
	}
	if found := hclog.LevelFromString(name); found != hclog.NoLevel {
		return found
	}
	return hclog.Trace
}

// largest is the size of a message that is accepted, in bytes.
func largest(text string) int {
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil || size < 0 {
		return defaultMaxMessage
	}
	return int(min(size, math.MaxInt))
}
