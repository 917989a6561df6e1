%% Where x-delayed-message keeps its messages, and the clock that fires them.
%%
%% The messages are rows of a table that Mnesia holds in memory and logs to disk
%% about every second or two: a clean stop keeps all of them, kill -9 loses the
%% last ones although they were confirmed. That weakness is wanted: it is the one
%% of the exchange that this module stands in for.
%%
%% Channels write rows themselves; the one process of this module sleeps until
%% the earliest is due. What is fired is deleted after it has been routed, so
%% that a crash between the two delivers it twice.
%%
%% When the plugin is disabled the table goes, and what it holds with it.
-module(duebox_standin_store).
-behaviour(gen_server).

-include_lib("rabbit_common/include/rabbit.hrl").

-export([setup/0, start_link/0, disable/0]).
-export([keep/3, drop/1, count/1, switch/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-rabbit_boot_step({duebox_standin_table,
                   [{description, "x-delayed-message: table"},
                    {mfa, {?MODULE, setup, []}},
                    {requires, database},
                    {enables, external_infrastructure}]}).
-rabbit_boot_step({duebox_standin_clock,
                   [{description, "x-delayed-message: clock"},
                    {mfa, {rabbit_sup, start_child, [?MODULE]}},
                    {cleanup, {?MODULE, disable, []}},
                    {requires, [duebox_standin_table, routing_ready]}]}).

-define(TABLE, duebox_standin_message).
-define(APP, duebox_standin).
-define(NEVER, 16#7FFFFFFFFFFFFFFF).
-define(LONGEST_SLEEP, 3600000).

%% key = {Due, Order}: Due in microseconds of the system's clock, Order unique
%% and rising, so that messages of one due time fire in the order they came.
-record(?TABLE, {key, exchange, message}).

setup() ->
    _ = mnesia:create_table(?TABLE,
                            [{type, ordered_set},
                             {attributes, record_info(fields, ?TABLE)},
                             {disc_copies, [node()]}]),
    ok = mnesia:wait_for_tables([?TABLE], 60000),
    persistent_term:put(?MODULE, {atomics:new(1, [{signed, true}]),
                                  counters:new(1, [])}).

disable() ->
    ok = rabbit_sup:stop_child(?MODULE),
    {atomic, ok} = mnesia:delete_table(?TABLE),
    ok.

start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Keeps a message for Delay milliseconds. Called by the publisher's channel.
keep(Exchange, Message, Delay) ->
    case lost() of
        true ->
            ok;
        false ->
            Now = erlang:system_time(microsecond),
            Due = Now + Delay * 1000,
            Order = {Now, erlang:unique_integer([monotonic])},
            ok = mnesia:dirty_write(#?TABLE{key = {Due, Order},
                                            exchange = Exchange,
                                            message = Message}),
            wake(Due)
    end.

%% Drops what an exchange holds.
drop(Exchange) ->
    lists:foreach(fun(Key) -> ok = mnesia:dirty_delete(?TABLE, Key) end,
                  keys(Exchange)).

count(Exchange) -> length(keys(Exchange)).

keys(Exchange) ->
    mnesia:dirty_select(?TABLE, [{#?TABLE{key = '$1', exchange = Exchange,
                                          message = '_'}, [], ['$1']}]).

%% Sets a test switch: lose (every nth message, 0 for none) or stuck.
switch(lose, Nth) when is_integer(Nth), Nth >= 0 ->
    {_, Counter} = persistent_term:get(?MODULE),
    ok = counters:put(Counter, 1, 0),
    application:set_env(?APP, lose, Nth);
switch(stuck, Stuck) when is_boolean(Stuck) ->
    ok = application:set_env(?APP, stuck, Stuck),
    gen_server:call(?MODULE, wake).

lost() ->
    case application:get_env(?APP, lose, 0) of
        0 ->
            false;
        Nth ->
            {_, Counter} = persistent_term:get(?MODULE),
            ok = counters:add(Counter, 1, 1),
            counters:get(Counter, 1) rem Nth =:= 0
    end.

%% Wakes the clock if it means to sleep past Due. The row is in the table by
%% now: either the clock, which looks once more after it has written down how
%% long it will sleep, sees the row, or we see what it wrote.
wake(Due) ->
    {Alarm, _} = persistent_term:get(?MODULE),
    case Due < atomics:get(Alarm, 1) of
        true -> gen_server:cast(?MODULE, wake);
        false -> ok
    end.

init([]) ->
    {Alarm, _} = persistent_term:get(?MODULE),
    {ok, Alarm, 0}.

handle_call(_, _, Alarm) -> {reply, ok, Alarm, run(Alarm)}.
handle_cast(_, Alarm) -> {noreply, Alarm, run(Alarm)}.
handle_info(_, Alarm) -> {noreply, Alarm, run(Alarm)}.

%% Fires what is due and returns for how many milliseconds to sleep.
run(Alarm) ->
    case application:get_env(?APP, stuck, false) of
        true ->
            ok = atomics:put(Alarm, 1, ?NEVER),
            ?LONGEST_SLEEP;
        false ->
            fire(mnesia:dirty_first(?TABLE)),
            sleep(Alarm, mnesia:dirty_first(?TABLE))
    end.

sleep(Alarm, First) ->
    ok = atomics:put(Alarm, 1, due(First)),
    case mnesia:dirty_first(?TABLE) of
        First ->
            Left = due(First) - erlang:system_time(microsecond),
            min(max((Left + 999) div 1000, 0), ?LONGEST_SLEEP);
        Earlier ->
            sleep(Alarm, Earlier)
    end.

due('$end_of_table') -> ?NEVER;
due({Due, _}) -> Due.

fire(First) ->
    case due(First) =< erlang:system_time(microsecond) of
        true ->
            lists:foreach(fun publish/1, mnesia:dirty_read(?TABLE, First)),
            ok = mnesia:dirty_delete(?TABLE, First),
            fire(mnesia:dirty_first(?TABLE));
        false ->
            ok
    end.

publish(#?TABLE{exchange = Exchange, message = Message}) ->
    try
        duebox_standin:fire(Exchange, Message)
    catch
        Class:Reason:Stack ->
            rabbit_log:error("x-delayed-message: message dropped: ~p",
                             [{Class, Reason, Stack}])
    end.
