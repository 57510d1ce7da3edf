/** Carries messages between detectors, or loses them. */
export interface Transport {
  /** Connections to and from others that are open now. 0 where there are none. */
  readonly connections: number;
  /** Sends without waiting. What cannot be sent is lost, and `onSendError` is told why. */
  send(address: string, bytes: Uint8Array): void;
  /** Resolves when everything that was sent has left, or is lost. */
  flush(): Promise<void>;
  /** Certificates are read anew. Undefined where there are none. */
  reloadSecurity?(): void;
  close(): Promise<void>;
}

export interface TransportListener {
  onBytes(bytes: Uint8Array): void;
  onSendError(reason: string): void;
}

/** Listens at an address; rejects where it cannot. */
export type OpenTransport = (address: string, listener: TransportListener) => Promise<Transport>;
