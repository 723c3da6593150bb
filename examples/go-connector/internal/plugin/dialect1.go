package plugin

import (
	"context"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	pb "go-connector/internal/pb/connectorv1"
)

// The first dialect: Start for Open, one record and one ack in a message.

func registerFirst(server *grpc.Server, connector Connector, log hclog.Logger) {
	pb.RegisterSpecifierPluginServer(server, &specifier1{connector: connector})
	if connector.NewSource != nil {
		pb.RegisterSourcePluginServer(server, &source1{sourceRun: newSourceRun(connector.NewSource(log), connector.SourceSettings)})
	}
	if connector.NewDestination != nil {
		run := newDestinationRun(connector.NewDestination(log), connector.DestinationSettings)
		pb.RegisterDestinationPluginServer(server, &destination1{destinationRun: run})
	}
}

type specifier1 struct {
	pb.UnimplementedSpecifierPluginServer
	connector Connector
}

func (s *specifier1) Specify(context.Context, *pb.Specifier_Specify_Request) (*pb.Specifier_Specify_Response, error) {
	c := s.connector
	return &pb.Specifier_Specify_Response{
		Name: c.Name, Version: c.Version, Summary: c.Summary, Description: c.Description, Author: c.Author,
		SourceParams: parametersFirst(c.SourceSettings), DestinationParams: parametersFirst(c.DestinationSettings),
	}, nil
}

// parametersFirst: types and validations have the same numbers in both dialects, the fields have not.
func parametersFirst(declared []Setting) map[string]*pb.Specifier_Parameter {
	made := map[string]*pb.Specifier_Parameter{}
	for name, parameter := range parameters(declared) {
		one := &pb.Specifier_Parameter{
			Default: parameter.Default, Description: parameter.Description, Type: pb.Specifier_Parameter_Type(parameter.Type),
		}
		for _, validation := range parameter.Validations {
			kind := pb.Specifier_Parameter_Validation_Type(validation.Type)
			one.Validations = append(one.Validations, &pb.Specifier_Parameter_Validation{Type: kind, Value: validation.Value})
		}
		made[name] = one
	}
	return made
}

// -- source ---------------------------------------------------------------------------------------------------------------

type source1 struct {
	pb.UnimplementedSourcePluginServer
	*sourceRun
}

func (s *source1) Configure(_ context.Context, request *pb.Source_Configure_Request) (*pb.Source_Configure_Response, error) {
	return &pb.Source_Configure_Response{}, s.configure(request.GetConfig())
}

func (s *source1) Start(ctx context.Context, request *pb.Source_Start_Request) (*pb.Source_Start_Response, error) {
	return &pb.Source_Start_Response{}, s.open(ctx, request.GetPosition())
}

func (s *source1) Run(stream pb.SourcePlugin_RunServer) error {
	send := func(records []*Record) error {
		for _, record := range records {
			if err := stream.Send(&pb.Source_Run_Response{Record: record}); err != nil {
				return err
			}
		}
		return nil
	}
	receive := func() ([][]byte, error) {
		request, err := stream.Recv()
		return [][]byte{request.GetAckPosition()}, err
	}
	return s.run(stream.Context(), send, receive)
}

func (s *source1) Stop(ctx context.Context, _ *pb.Source_Stop_Request) (*pb.Source_Stop_Response, error) {
	last, err := s.stop(ctx)
	return &pb.Source_Stop_Response{LastPosition: last}, err
}

func (s *source1) Teardown(ctx context.Context, _ *pb.Source_Teardown_Request) (*pb.Source_Teardown_Response, error) {
	return &pb.Source_Teardown_Response{}, s.teardown(ctx)
}

func (s *source1) LifecycleOnCreated(ctx context.Context, request *pb.Source_Lifecycle_OnCreated_Request) (*pb.Source_Lifecycle_OnCreated_Response, error) {
	return &pb.Source_Lifecycle_OnCreated_Response{}, onCreated(ctx, s.source, request.GetConfig())
}

func (s *source1) LifecycleOnUpdated(ctx context.Context, request *pb.Source_Lifecycle_OnUpdated_Request) (*pb.Source_Lifecycle_OnUpdated_Response, error) {
	return &pb.Source_Lifecycle_OnUpdated_Response{}, onUpdated(ctx, s.source, request.GetConfigBefore(), request.GetConfigAfter())
}

func (s *source1) LifecycleOnDeleted(ctx context.Context, request *pb.Source_Lifecycle_OnDeleted_Request) (*pb.Source_Lifecycle_OnDeleted_Response, error) {
	return &pb.Source_Lifecycle_OnDeleted_Response{}, onDeleted(ctx, s.source, request.GetConfig())
}

// -- destination ---------------------------------------------------------------------------------------------------------------

type destination1 struct {
	pb.UnimplementedDestinationPluginServer
	*destinationRun
}

func (s *destination1) Configure(_ context.Context, request *pb.Destination_Configure_Request) (*pb.Destination_Configure_Response, error) {
	return &pb.Destination_Configure_Response{}, s.configure(request.GetConfig())
}

func (s *destination1) Start(ctx context.Context, _ *pb.Destination_Start_Request) (*pb.Destination_Start_Response, error) {
	return &pb.Destination_Start_Response{}, s.open(ctx)
}

func (s *destination1) Run(stream pb.DestinationPlugin_RunServer) error {
	send := func(outcomes []outcome) error {
		for _, one := range outcomes {
			if err := stream.Send(&pb.Destination_Run_Response{AckPosition: one.position, Error: one.error}); err != nil {
				return err
			}
		}
		return nil
	}
	receive := func() ([]*Record, error) {
		request, err := stream.Recv()
		if record := request.GetRecord(); record != nil {
			return []*Record{record}, err
		}
		return nil, err
	}
	return s.run(stream.Context(), send, receive)
}

func (s *destination1) Stop(ctx context.Context, request *pb.Destination_Stop_Request) (*pb.Destination_Stop_Response, error) {
	return &pb.Destination_Stop_Response{}, s.stop(ctx, request.GetLastPosition())
}

func (s *destination1) Teardown(ctx context.Context, _ *pb.Destination_Teardown_Request) (*pb.Destination_Teardown_Response, error) {
	return &pb.Destination_Teardown_Response{}, s.teardown(ctx)
}

func (s *destination1) LifecycleOnCreated(ctx context.Context, request *pb.Destination_Lifecycle_OnCreated_Request) (*pb.Destination_Lifecycle_OnCreated_Response, error) {
	return &pb.Destination_Lifecycle_OnCreated_Response{}, onCreated(ctx, s.destination, request.GetConfig())
}

func (s *destination1) LifecycleOnUpdated(ctx context.Context, request *pb.Destination_Lifecycle_OnUpdated_Request) (*pb.Destination_Lifecycle_OnUpdated_Response, error) {
	return &pb.Destination_Lifecycle_OnUpdated_Response{}, onUpdated(ctx, s.destination, request.GetConfigBefore(), request.GetConfigAfter())
}

func (s *destination1) LifecycleOnDeleted(ctx context.Context, request *pb.Destination_Lifecycle_OnDeleted_Request) (*pb.Destination_Lifecycle_OnDeleted_Response, error) {
	return &pb.Destination_Lifecycle_OnDeleted_Response{}, onDeleted(ctx, s.destination, request.GetConfig())
}
