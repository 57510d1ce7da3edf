import { type Column, formatBytes, formatCount, nothing, tableOf } from "../report.ts";
import { blockBytes } from "./stamps.ts";

/** What a disk did over one transport. */
export interface Result {
  readonly over: string;
  /** Who wrote and read. */
  readonly client: string;
  /** Blocks that were written and read back, and those of them that were right. */
  readonly blocks: number;
  readonly verified: number;
  /** All blocks of the disk, written and then read without a kill. */
  readonly whole: { readonly bytes: number; readonly writeMs: number; readonly readMs: number };
  /** Each request had one block. */
  readonly isByBlocks: boolean;
  readonly kills: number;
  /** The longest time of a write under kills, if the client reports it. */
  readonly longestMs: number | undefined;
}

const seconds = (ms: number): number => ms / 1000;

const rateOf = ({ whole, isByBlocks }: Result, ms: number): string => {
  const rate = `${formatBytes(whole.bytes / seconds(ms))}/s`;
  return isByBlocks ? `${formatCount(Math.round(whole.bytes / blockBytes / seconds(ms)))}/s, ${rate}` : rate;
};

const columns: readonly Column<Result>[] = [
  ["over", ({ over }) => over],
  ["client", ({ client }) => client],
  ["blocks", ({ blocks }) => formatCount(blocks)],
  ["bytes", ({ blocks }) => formatBytes(blocks * blockBytes)],
  ["writes", (one) => rateOf(one, one.whole.writeMs)],
  ["reads", (one) => rateOf(one, one.whole.readMs)],
  ["kills", ({ kills }) => formatCount(kills)],
  ["longest write", ({ longestMs }) => (longestMs === undefined ? nothing : `${longestMs.toFixed(0)} ms`)],
  [
    "verified",
    ({ blocks, verified }) =>
      verified === blocks ? "all" : `${formatCount(verified)} of ${formatCount(blocks)}`,
  ],
];

export const formatResults = (results: readonly Result[]): string => tableOf(columns, results);

/** What the columns mean. */
export const legend = [
  "blocks: blocks of 4 KiB with stamps of their own, half of them written while the server was killed, all read back.",
  "writes, reads: the other half, 32 blocks under way; those of nbdcopy are longer.",
  "kills: the server was ended by SIGKILL in the middle of writes, and started again on its file.",
  "longest write: how long one waited for its answer at most, from before the kill to the new server.",
].join("\n");
