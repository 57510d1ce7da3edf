/**
 * Admission options of a test that holds its handlers back: requests wait for as long as it does. By default a queue
 * that has stood for 100 ms rejects what is older than 5 ms, and 1 s ends every wait: a slow machine reaches both.
 */
export const waits = { maxQueueMs: 60_000, targetQueueMs: 60_000 };
