/** Carries messages between detectors, or loses them. */
export interface Transport {
  /** Sends without waiting. What cannot be sent is lost, and counted by `onSendError`. */
  send(address: string, bytes: Uint8Array): void;
  close(): Promise<void>;
}

export interface TransportListener {
  onBytes(bytes: Uint8Array): void;
  onSendError(): void;
}

/** Listens at an address; rejects where it cannot. */
export type OpenTransport = (address: string, listener: TransportListener) => Promise<Transport>;
