/** Told by a resolver. */
export interface ResolverListener {
  /** All URLs there are now; told at first and whenever they change. */
  onUrls(urls: readonly string[]): void;
  /** They could not be had this time. Those of the last time stay. */
  onError(error: unknown): void;
}

/** Where the peers of a group are: what a discovery service looks like to Cinnabar. */
export interface Resolver {
  /** For people. */
  readonly name: string;
  /** Begins to tell, perhaps at once, until the returned function is called. May be started several times. Its timers must not keep the process alive. */
  start(listener: ResolverListener): () => void;
}

/** Always the same URLs. */
export function staticResolver(urls: readonly string[]): Resolver {
  const all = [...new Set(urls)];
  return {
    name: all.join(", "),
    start(listener) {
      listener.onUrls(all);
      return () => {};
    },
  };
}
