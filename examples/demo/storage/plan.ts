/** How much is done over each transport. */
export interface Plan {
  /** Blocks of the disk. */
  readonly blocks: number;
  /** How often the server is killed. */
  readonly kills: number;
  /** Aborted when the demo is to end. */
  readonly signal: AbortSignal;
  /** A folder of the demo's own. */
  readonly folder: string;
}
