/** Carries messages between detectors, or loses them. */
export interface Transport {
  /** Open connections to and from others. 0 for a transport without connections. */
  readonly connections: number;
  /** Sends without waiting. What cannot be sent is lost, and `onSendError` gets the reason. */
  send(address: string, bytes: Uint8Array): void;
  /** Resolves when everything that was sent has left, or is lost. */
  flush(): Promise<void>;
  /** Reads certificates again. Undefined for a transport without certificates. */
  reloadSecurity?(): void;
  close(): Promise<void>;
}

export interface TransportListener {
  onBytes(bytes: Uint8Array): void;
  onSendError(reason: string): void;
}

/** Listens at an address; rejects where it cannot. */
export type OpenTransport = (address: string, listener: TransportListener) => Promise<Transport>;
