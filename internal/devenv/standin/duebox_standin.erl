%% The exchange type x-delayed-message, for development and tests only.
%%
%% A message with an x-delay header between 1 and 2^32-1 milliseconds is kept
%% and routed when its time has come, by the exchange type that the argument
%% x-delayed-type names. Every other message is routed at once. To the channel a
%% kept message looks like one that no queue took: it is confirmed, returned if
%% it is mandatory, and a copy goes to the alternate exchange.
-module(duebox_standin).
-behaviour(rabbit_exchange_type).

-include_lib("rabbit_common/include/rabbit.hrl").
-include_lib("rabbit_common/include/rabbit_framing.hrl").

-export([description/0, serialise_events/0, route/2, validate/1,
         validate_binding/2, create/2, delete/3, policy_changed/2,
         add_binding/3, remove_bindings/3, assert_args_equivalence/2,
         info/1, info/2]).
-export([fire/2]).

-rabbit_boot_step({?MODULE,
                   [{description, "exchange type x-delayed-message"},
                    {mfa, {rabbit_registry, register,
                           [exchange, <<"x-delayed-message">>, ?MODULE]}},
                    {cleanup, {rabbit_registry, unregister,
                               [exchange, <<"x-delayed-message">>]}},
                    {requires, rabbit_registry},
                    {enables, kernel_ready}]}).

-define(TYPE_ARGUMENT, <<"x-delayed-type">>).
-define(LONGEST, 16#FFFFFFFF).

description() ->
    [{name, <<"x-delayed-message">>},
     {description, <<"Routes a message after its x-delay">>}].

serialise_events() -> false.

route(X, Delivery = #delivery{message = Message}) ->
    case delay(Message) of
        none ->
            (target_module(X)):route(X, Delivery);
        Delay ->
            ok = duebox_standin_store:keep(X#exchange.name, Message, Delay),
            []
    end.

%% Publishes a kept message as if the exchange were of its target type. Whatever
%% the channel was promised has been answered long ago, so nothing is confirmed,
%% returned or sent to the alternate exchange: what no queue takes is dropped.
fire(Name, Message) ->
    case rabbit_exchange:lookup(Name) of
        {ok, X = #exchange{arguments = Arguments}} ->
            Plain = X#exchange{
                      type = target_type(X),
                      arguments = lists:keydelete(<<"alternate-exchange">>, 1,
                                                  Arguments),
                      policy = undefined,
                      operator_policy = undefined},
            Delivery = rabbit_basic:delivery(false, false, Message, undefined),
            Queues = rabbit_amqqueue:lookup(
                       rabbit_exchange:route(Plain, Delivery)),
            _ = rabbit_queue_type:deliver(Queues, Delivery, stateless),
            ok;
        {error, not_found} ->
            ok
    end.

validate(#exchange{arguments = Arguments}) ->
    case rabbit_misc:table_lookup(Arguments, ?TYPE_ARGUMENT) of
        {longstr, <<"x-delayed-message">>} ->
            refuse("~s cannot be x-delayed-message", [?TYPE_ARGUMENT]);
        {longstr, Type} ->
            _ = rabbit_exchange:check_type(Type),
            ok;
        _ ->
            refuse("x-delayed-message needs the string argument ~s",
                   [?TYPE_ARGUMENT])
    end.

refuse(Format, Arguments) ->
    rabbit_misc:protocol_error(precondition_failed, Format, Arguments).

%% Everything about bindings is the target type's business: some types keep
%% tables of their own.
validate_binding(X, Binding) ->
    (target_module(X)):validate_binding(X, Binding).

create(Serial, X) ->
    (target_module(X)):create(Serial, X).

delete(transaction, X, Bindings) ->
    (target_module(X)):delete(transaction, X, Bindings);
delete(Serial, X, Bindings) ->
    ok = duebox_standin_store:drop(X#exchange.name),
    (target_module(X)):delete(Serial, X, Bindings).

policy_changed(Old, New) ->
    (target_module(New)):policy_changed(Old, New).

add_binding(Serial, X, Binding) ->
    (target_module(X)):add_binding(Serial, X, Binding).

remove_bindings(Serial, X, Bindings) ->
    (target_module(X)):remove_bindings(Serial, X, Bindings).

assert_args_equivalence(X, Arguments) ->
    rabbit_exchange:assert_args_equivalence(X, Arguments).

info(#exchange{name = Name}) ->
    [{messages_delayed, duebox_standin_store:count(Name)}].

info(X, Items) ->
    [Item || Item = {Key, _} <- info(X), lists:member(Key, Items)].

target_type(#exchange{arguments = Arguments}) ->
    {longstr, Type} = rabbit_misc:table_lookup(Arguments, ?TYPE_ARGUMENT),
    rabbit_registry:binary_to_type(Type).

target_module(X) ->
    {ok, Module} = rabbit_registry:lookup_module(exchange, target_type(X)),
    Module.

%% Milliseconds, or none. A string that is no integer ends the channel.
delay(#basic_message{content = Content}) ->
    #content{properties = #'P_basic'{headers = Headers}} =
        rabbit_binary_parser:ensure_content_decoded(Content),
    case header(Headers) of
        Delay when is_integer(Delay), Delay > 0, Delay =< ?LONGEST -> Delay;
        _ -> none
    end.

header(undefined) ->
    none;
header(Headers) ->
    case rabbit_misc:table_lookup(Headers, <<"x-delay">>) of
        {longstr, Text} -> binary_to_integer(Text);
        {_, Number} when is_integer(Number) -> Number;
        {_, Number} when is_float(Number) -> trunc(Number);
        _ -> none
    end.
