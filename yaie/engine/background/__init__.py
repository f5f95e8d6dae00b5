"""An engine behind an event loop, on a thread or in a process of its own. From a caller down:

    async_engine     `AsyncEngine`, on the event loop: what callers submit prompts to
    engine_life      its base: how an engine is loaded, called, drained and ended
    prompts          texts become tokens
    messages         what goes down (commands) and up (events)
    driver           a Protocol: what runs the engine. `yaie.server.engine` chooses one of two:
    engine_thread    `EngineThread`, which obeys commands and takes steps of an `LLMEngine`
    thread_life      its base: how that is loaded, given up and ended
    engine_process   `EngineProcess`: a pipe to another process
    engine_child     the other end of that pipe, with an `EngineThread` behind it
    streams          the way back: `OpenStreams` gives each output to the `RequestStream` of its call

Beside the way, `latencies` writes `telemetry`, `rejections` counts what found no room, `timeouts` and
`watchdog` give up, and `watchers` and `step_mode` serve those who watch.
"""
