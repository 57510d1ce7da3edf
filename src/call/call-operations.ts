/** A failure of an operation that the handler has not seen. */
export interface OperationFailure {
  readonly error: unknown;
}

/**
 * Operations of a handler that the handler may leave running: transfers and pulls. A handler may return while they run.
 * They then belong to the call: the server waits for them, and a failure fails the call.
 *
 * Two failures count: the failure of an operation that was not awaited before the handler returned, and the failure of
 * an operation that ends afterwards. The handler deals with operations that it awaited.
 */
export class CallOperations {
  /** Operations that have not settled. */
  open = 0;
  /** Failures of operations that were not awaited, in order. */
  #unseen: OperationFailure[] | undefined;
  #failure: OperationFailure | undefined;
  #whenSettled: ((failure: OperationFailure | undefined) => void) | undefined;

  /**
   * The handler has returned. Returns undefined when no operation is open and no failure counts. Otherwise the promise
   * resolves when all operations have settled, to the first failure that counts.
   */
  handlerReturned(): Promise<OperationFailure | undefined> | undefined {
    this.#failure = this.#unseen?.[0];
    if (this.open > 0) return new Promise((resolve) => (this.#whenSettled = resolve));
    return this.#failure === undefined ? undefined : Promise.resolve(this.#failure);
  }

  /** @internal */
  begin(): void {
    this.open++;
  }

  /** @internal */
  end(failure: OperationFailure | undefined): void {
    this.open--;
    if (this.#whenSettled === undefined) return;
    this.#failure ??= failure;
    if (this.open === 0) this.#whenSettled(this.#failure);
  }

  /** @internal An operation has failed, and was not awaited. */
  onUnseen(failure: OperationFailure): void {
    this.#unseen ??= [];
    this.#unseen.push(failure);
  }

  /** @internal The operation is awaited after all. */
  onSeen(failure: OperationFailure): void {
    this.#unseen = this.#unseen?.filter((other) => other !== failure);
  }
}

/**
 * Settles the promise of an operation. When the promise rejects without being awaited, the call takes the failure, and
 * no rejection is left unhandled. `then` of the promise reports that it is awaited. Without `operations` the promise is
 * an ordinary one.
 */
export class CallSettler<T> {
  #promise: Promise<T> | undefined;
  #failure: OperationFailure | undefined;
  #awaited = false;
  readonly #operations: CallOperations | undefined;
  readonly #resolve: (value: T) => void;
  readonly #reject: (error: unknown) => void;

  constructor(
    operations: CallOperations | undefined,
    resolve: (value: T) => void,
    reject: (error: unknown) => void,
  ) {
    this.#operations = operations;
    this.#resolve = resolve;
    this.#reject = reject;
    operations?.begin();
  }

  resolve(value: T): void {
    this.#resolve(value);
    this.#operations?.end(undefined);
  }

  reject(error: unknown): void {
    this.#reject(error);
    if (this.#operations === undefined) return;
    this.#failure = { error };
    if (!this.#awaited) {
      this.#operations.onUnseen(this.#failure);
      this.#markHandled();
    }
    this.#operations.end(this.#failure);
  }

  /** The promise has been made. It may have rejected meanwhile. */
  attach(promise: Promise<T>): void {
    this.#promise = promise;
    if (this.#failure !== undefined) this.#markHandled();
  }

  onAwaited(): void {
    if (this.#awaited) return;
    this.#awaited = true;
    if (this.#failure !== undefined) this.#operations?.onSeen(this.#failure);
  }

  /** The call reports the failure, so Node must not report it as unhandled. */
  #markHandled(): void {
    if (this.#promise !== undefined) Promise.prototype.then.call(this.#promise, undefined, () => {});
  }
}

/**
 * The promise of an operation that a handler started in its call. A handler may leave it running: the call ends after
 * the operation, and fails with it if the promise was not awaited.
 */
export class CallPromise<T> extends Promise<T> {
  readonly #settler: CallSettler<T>;

  /** `then` returns a plain promise. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  /** @internal `start` starts the operation; it does not throw. */
  constructor(operations: CallOperations | undefined, start: (settler: CallSettler<T>) => void) {
    let settler!: CallSettler<T>;
    super((resolve: (value: T) => void, reject) => {
      settler = new CallSettler(operations, resolve, reject);
      start(settler);
    });
    settler.attach(this);
    this.#settler = settler;
  }

  // biome-ignore lint/suspicious/noThenProperty: it notes that the promise is awaited
  override then<A = T, B = never>(
    onResolved?: ((value: T) => A | PromiseLike<A>) | null,
    // biome-ignore lint/suspicious/noExplicitAny: as in the class of all promises
    onRejected?: ((reason: any) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.#settler.onAwaited();
    return super.then(onResolved, onRejected);
  }
}

/** Runs `run` as one operation of the call. `run` does not throw. */
export function callPromise<T>(operations: CallOperations | undefined, run: () => Promise<T>): Promise<T> {
  return new CallPromise<T>(operations, (settler) => {
    run().then(
      (value) => settler.resolve(value),
      (error: unknown) => settler.reject(error),
    );
  });
}
