{application, duebox_standin, [
    {description, "x-delayed-message exchange type for development"},
    {vsn, "1.0.0"},
    {modules, [duebox_standin, duebox_standin_store]},
    {registered, [duebox_standin_store]},
    {applications, [kernel, stdlib, mnesia, rabbit_common, rabbit]},
    {env, [{lose, 0}, {stuck, false}]}
]}.
