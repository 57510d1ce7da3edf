/** An application of Nest, as `closeAppOnSignals` uses it. */
export interface ClosableApp {
  close(signal?: string): Promise<void>;
}

/**
 * Closes an application on signals by its own `close()`, so that all hooks run in the same order as without a signal:
 * calls in flight end before `onModuleDestroy`. Nest's `enableShutdownHooks` destroys modules first and drains
 * afterwards; do not use both. The process ends by itself with status 0, or 1 if `close()` fails. A second signal ends
 * it at once. Dispose of the result to remove the listeners.
 */
export function closeAppOnSignals(
  app: ClosableApp,
  signals: readonly NodeJS.Signals[] = ["SIGTERM", "SIGINT"],
): Disposable {
  let isClosing = false;
  const dispose = () => {
    for (const signal of signals) process.off(signal, onSignal);
  };
  const onSignal = (signal: NodeJS.Signals) => {
    if (isClosing) {
      dispose();
      process.kill(process.pid, signal);
      return;
    }
    isClosing = true;
    app.close(signal).then(dispose, (error: unknown) => {
      console.error("cinnabar-nest: the application could not close:", error);
      process.exitCode = 1;
      dispose();
    });
  };
  for (const signal of signals) process.on(signal, onSignal);
  return { [Symbol.dispose]: dispose };
}
