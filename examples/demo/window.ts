/** What came of one request for a piece of a file. */
export type Pulled =
  | { readonly bytes: number; readonly writes: number; readonly problem?: never }
  | { readonly problem: string };

/** Memory that pieces of files are brought into, one after the other; how, is what is compared. */
export interface Window extends AsyncDisposable {
  readonly memory: Uint8Array;
  /**
   * Brings `length` bytes of a file to the memory's start; fewer when the file ends. Rejects when there is nobody to
   * ask any more.
   */
  pull(path: string, offset: number, length: number, signal: AbortSignal): Promise<Pulled>;
}

/** Makes a window. */
export type OpenWindow = (bytes: number) => Promise<Window>;
