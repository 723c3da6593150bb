from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Specifier(_message.Message):
    __slots__ = ()
    class Specify(_message.Message):
        __slots__ = ()
        class Request(_message.Message):
            __slots__ = ()
            def __init__(self) -> None: ...
        class Response(_message.Message):
            __slots__ = ("name", "summary", "description", "version", "author", "destination_params", "source_params")
            class DestinationParamsEntry(_message.Message):
                __slots__ = ("key", "value")
                KEY_FIELD_NUMBER: _ClassVar[int]
                VALUE_FIELD_NUMBER: _ClassVar[int]
                key: str
                value: Specifier.Parameter
                def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Specifier.Parameter, _Mapping]] = ...) -> None: ...
            class SourceParamsEntry(_message.Message):
                __slots__ = ("key", "value")
                KEY_FIELD_NUMBER: _ClassVar[int]
                VALUE_FIELD_NUMBER: _ClassVar[int]
                key: str
                value: Specifier.Parameter
                def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Specifier.Parameter, _Mapping]] = ...) -> None: ...
            NAME_FIELD_NUMBER: _ClassVar[int]
            SUMMARY_FIELD_NUMBER: _ClassVar[int]
            DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
            VERSION_FIELD_NUMBER: _ClassVar[int]
            AUTHOR_FIELD_NUMBER: _ClassVar[int]
            DESTINATION_PARAMS_FIELD_NUMBER: _ClassVar[int]
            SOURCE_PARAMS_FIELD_NUMBER: _ClassVar[int]
            name: str
            summary: str
            description: str
            version: str
            author: str
            destination_params: _containers.MessageMap[str, Specifier.Parameter]
            source_params: _containers.MessageMap[str, Specifier.Parameter]
            def __init__(self, name: _Optional[str] = ..., summary: _Optional[str] = ..., description: _Optional[str] = ..., version: _Optional[str] = ..., author: _Optional[str] = ..., destination_params: _Optional[_Mapping[str, Specifier.Parameter]] = ..., source_params: _Optional[_Mapping[str, Specifier.Parameter]] = ...) -> None: ...
        def __init__(self) -> None: ...
    class Parameter(_message.Message):
        __slots__ = ("default", "required", "description", "type", "validations")
        class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            TYPE_UNSPECIFIED: _ClassVar[Specifier.Parameter.Type]
            TYPE_STRING: _ClassVar[Specifier.Parameter.Type]
            TYPE_INT: _ClassVar[Specifier.Parameter.Type]
            TYPE_FLOAT: _ClassVar[Specifier.Parameter.Type]
            TYPE_BOOL: _ClassVar[Specifier.Parameter.Type]
            TYPE_FILE: _ClassVar[Specifier.Parameter.Type]
            TYPE_DURATION: _ClassVar[Specifier.Parameter.Type]
        TYPE_UNSPECIFIED: Specifier.Parameter.Type
        TYPE_STRING: Specifier.Parameter.Type
        TYPE_INT: Specifier.Parameter.Type
        TYPE_FLOAT: Specifier.Parameter.Type
        TYPE_BOOL: Specifier.Parameter.Type
        TYPE_FILE: Specifier.Parameter.Type
        TYPE_DURATION: Specifier.Parameter.Type
        class Validation(_message.Message):
            __slots__ = ("type", "value")
            class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
                __slots__ = ()
                TYPE_UNSPECIFIED: _ClassVar[Specifier.Parameter.Validation.Type]
                TYPE_REQUIRED: _ClassVar[Specifier.Parameter.Validation.Type]
                TYPE_GREATER_THAN: _ClassVar[Specifier.Parameter.Validation.Type]
                TYPE_LESS_THAN: _ClassVar[Specifier.Parameter.Validation.Type]
                TYPE_INCLUSION: _ClassVar[Specifier.Parameter.Validation.Type]
                TYPE_EXCLUSION: _ClassVar[Specifier.Parameter.Validation.Type]
                TYPE_REGEX: _ClassVar[Specifier.Parameter.Validation.Type]
            TYPE_UNSPECIFIED: Specifier.Parameter.Validation.Type
            TYPE_REQUIRED: Specifier.Parameter.Validation.Type
            TYPE_GREATER_THAN: Specifier.Parameter.Validation.Type
            TYPE_LESS_THAN: Specifier.Parameter.Validation.Type
            TYPE_INCLUSION: Specifier.Parameter.Validation.Type
            TYPE_EXCLUSION: Specifier.Parameter.Validation.Type
            TYPE_REGEX: Specifier.Parameter.Validation.Type
            TYPE_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            type: Specifier.Parameter.Validation.Type
            value: str
            def __init__(self, type: _Optional[_Union[Specifier.Parameter.Validation.Type, str]] = ..., value: _Optional[str] = ...) -> None: ...
        DEFAULT_FIELD_NUMBER: _ClassVar[int]
        REQUIRED_FIELD_NUMBER: _ClassVar[int]
        DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
        TYPE_FIELD_NUMBER: _ClassVar[int]
        VALIDATIONS_FIELD_NUMBER: _ClassVar[int]
        default: str
        required: bool
        description: str
        type: Specifier.Parameter.Type
        validations: _containers.RepeatedCompositeFieldContainer[Specifier.Parameter.Validation]
        def __init__(self, default: _Optional[str] = ..., required: bool = ..., description: _Optional[str] = ..., type: _Optional[_Union[Specifier.Parameter.Type, str]] = ..., validations: _Optional[_Iterable[_Union[Specifier.Parameter.Validation, _Mapping]]] = ...) -> None: ...
    def __init__(self) -> None: ...
