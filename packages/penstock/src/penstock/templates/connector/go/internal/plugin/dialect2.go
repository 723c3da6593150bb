package plugin

import (
	"context"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	pb "placeholder-name/internal/pb/connectorv2"
)

// The second dialect: batches of records, batches of acks.

func registerSecond(server *grpc.Server, connector Connector, log hclog.Logger) {
	pb.RegisterSpecifierPluginServer(server, &specifier2{connector: connector})
	if connector.NewSource != nil {
		pb.RegisterSourcePluginServer(server, &source2{sourceRun: newSourceRun(connector.NewSource(log), connector.SourceSettings)})
	}
	if connector.NewDestination != nil {
		run := newDestinationRun(connector.NewDestination(log), connector.DestinationSettings)
		pb.RegisterDestinationPluginServer(server, &destination2{destinationRun: run})
	}
}

type specifier2 struct {
	pb.UnimplementedSpecifierPluginServer
	connector Connector
}

func (s *specifier2) Specify(context.Context, *pb.Specifier_Specify_Request) (*pb.Specifier_Specify_Response, error) {
	c := s.connector
	return &pb.Specifier_Specify_Response{Specification: &pb.Specification{
		Name: c.Name, Version: c.Version, Summary: c.Summary, Description: c.Description, Author: c.Author,
		SourceParams: parameters(c.SourceSettings), DestinationParams: parameters(c.DestinationSettings),
	}}, nil
}

// -- source ---------------------------------------------------------------------------------------------------------------

type source2 struct {
	pb.UnimplementedSourcePluginServer
	*sourceRun
}

func (s *source2) Configure(_ context.Context, request *pb.Source_Configure_Request) (*pb.Source_Configure_Response, error) {
	return &pb.Source_Configure_Response{}, s.configure(request.GetConfig())
}

func (s *source2) Open(ctx context.Context, request *pb.Source_Open_Request) (*pb.Source_Open_Response, error) {
	return &pb.Source_Open_Response{}, s.open(ctx, request.GetPosition())
}

func (s *source2) Run(stream pb.SourcePlugin_RunServer) error {
	send := func(records []*Record) error {
		return stream.Send(&pb.Source_Run_Response{Records: records})
	}
	receive := func() ([][]byte, error) {
		request, err := stream.Recv()
		return request.GetAckPositions(), err
	}
	return s.run(stream.Context(), send, receive)
}

func (s *source2) Stop(ctx context.Context, _ *pb.Source_Stop_Request) (*pb.Source_Stop_Response, error) {
	last, err := s.stop(ctx)
	return &pb.Source_Stop_Response{LastPosition: last}, err
}

func (s *source2) Teardown(ctx context.Context, _ *pb.Source_Teardown_Request) (*pb.Source_Teardown_Response, error) {
	return &pb.Source_Teardown_Response{}, s.teardown(ctx)
}

func (s *source2) LifecycleOnCreated(ctx context.Context, request *pb.Source_Lifecycle_OnCreated_Request) (*pb.Source_Lifecycle_OnCreated_Response, error) {
	return &pb.Source_Lifecycle_OnCreated_Response{}, onCreated(ctx, s.source, request.GetConfig())
}

func (s *source2) LifecycleOnUpdated(ctx context.Context, request *pb.Source_Lifecycle_OnUpdated_Request) (*pb.Source_Lifecycle_OnUpdated_Response, error) {
	return &pb.Source_Lifecycle_OnUpdated_Response{}, onUpdated(ctx, s.source, request.GetConfigBefore(), request.GetConfigAfter())
}

func (s *source2) LifecycleOnDeleted(ctx context.Context, request *pb.Source_Lifecycle_OnDeleted_Request) (*pb.Source_Lifecycle_OnDeleted_Response, error) {
	return &pb.Source_Lifecycle_OnDeleted_Response{}, onDeleted(ctx, s.source, request.GetConfig())
}

// -- destination ---------------------------------------------------------------------------------------------------------------

type destination2 struct {
	pb.UnimplementedDestinationPluginServer
	*destinationRun
}

func (s *destination2) Configure(_ context.Context, request *pb.Destination_Configure_Request) (*pb.Destination_Configure_Response, error) {
	return &pb.Destination_Configure_Response{}, s.configure(request.GetConfig())
}

func (s *destination2) Open(ctx context.Context, _ *pb.Destination_Open_Request) (*pb.Destination_Open_Response, error) {
	return &pb.Destination_Open_Response{}, s.open(ctx)
}

func (s *destination2) Run(stream pb.DestinationPlugin_RunServer) error {
	send := func(outcomes []outcome) error {
		acks := make([]*pb.Destination_Run_Response_Ack, len(outcomes))
		for i, one := range outcomes {
			acks[i] = &pb.Destination_Run_Response_Ack{Position: one.position, Error: one.error}
		}
		return stream.Send(&pb.Destination_Run_Response{Acks: acks})
	}
	receive := func() ([]*Record, error) {
		request, err := stream.Recv()
		return request.GetRecords(), err
	}
	return s.run(stream.Context(), send, receive)
}

func (s *destination2) Stop(ctx context.Context, request *pb.Destination_Stop_Request) (*pb.Destination_Stop_Response, error) {
	return &pb.Destination_Stop_Response{}, s.stop(ctx, request.GetLastPosition())
}

func (s *destination2) Teardown(ctx context.Context, _ *pb.Destination_Teardown_Request) (*pb.Destination_Teardown_Response, error) {
	return &pb.Destination_Teardown_Response{}, s.teardown(ctx)
}

func (s *destination2) LifecycleOnCreated(ctx context.Context, request *pb.Destination_Lifecycle_OnCreated_Request) (*pb.Destination_Lifecycle_OnCreated_Response, error) {
	return &pb.Destination_Lifecycle_OnCreated_Response{}, onCreated(ctx, s.destination, request.GetConfig())
}

func (s *destination2) LifecycleOnUpdated(ctx context.Context, request *pb.Destination_Lifecycle_OnUpdated_Request) (*pb.Destination_Lifecycle_OnUpdated_Response, error) {
	return &pb.Destination_Lifecycle_OnUpdated_Response{}, onUpdated(ctx, s.destination, request.GetConfigBefore(), request.GetConfigAfter())
}

func (s *destination2) LifecycleOnDeleted(ctx context.Context, request *pb.Destination_Lifecycle_OnDeleted_Request) (*pb.Destination_Lifecycle_OnDeleted_Response, error) {
	return &pb.Destination_Lifecycle_OnDeleted_Response{}, onDeleted(ctx, s.destination, request.GetConfig())
}
