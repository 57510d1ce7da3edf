import { randomBytes } from "node:crypto";
import { link, open, readFile, rename, rm } from "node:fs/promises";
import { setTimeout as pause } from "node:timers/promises";
import {
  anything,
  checkedBy,
  type FieldsOf,
  instance,
  integer,
  milliseconds,
  required,
  resolveNested,
  resolveOptions,
} from "cinnabar/options";
import { RpcError } from "cinnabar/standard";
import type { ListedMember } from "../authority/static-authority.ts";
import { type Member, makeView, maxRank, type View } from "../view/view.ts";

/** The members of a group as a file has them. */
export interface GroupFile {
  /** The name of the group. */
  readonly group: string;
  /** The version of the saved view; 0 for the list of a first process. */
  readonly version: number;
  /** For `staticAuthority`. */
  readonly members: readonly ListedMember[];
  /** All URLs, those of the lowest rank first: for `coordinatorAuthority`. */
  readonly seeds: readonly string[];
}

/** The options of `groupFromFile`. */
export interface GroupFromFileOptions {
  /**
   * What this process writes where there is no file yet: the group with itself as the only member. When several
   * processes try, one writes, and all read the same. Default: it waits for a file.
   */
  readonly offer?:
    | { readonly group: string; readonly urls: readonly string[]; readonly rank?: number | undefined }
    | undefined;
  /** How long it waits for a file, in milliseconds. Default: 30,000. */
  readonly timeoutMs?: number | undefined;
  /** Gives up waiting. */
  readonly signal?: AbortSignal | undefined;
}

const offerFields = {
  group: required(anything<string>()),
  urls: required(anything<readonly string[]>()),
  rank: integer(0, maxRank, 0),
} satisfies FieldsOf<NonNullable<GroupFromFileOptions["offer"]>>;

const fields = {
  // What is in the file is checked where it is read.
  offer: checkedBy((where, name, value) => resolveNested(where, name, value, offerFields)),
  timeoutMs: milliseconds({ fallback: 30_000 }),
  signal: instance(AbortSignal),
} satisfies FieldsOf<GroupFromFileOptions>;

/** Between two looks for the file. A network file system does not report changes. */
const lookMs = 50;
const format = 1;

/**
 * Reads a group's members from a file, waits for the file where it is not there yet, or writes it as the first one. A
 * file is there as a whole or not at all. It does not go by itself: name it after the job, or remove it before a start.
 *
 * @throws TypeError or RangeError for bad options. RpcError `unavailable` when no file came in time, `cancelled` for the
 * signal, `invalid_argument` for a file that describes no group. What the file system throws.
 *
 * @example
 * const offer = launch.rank === 0 ? { offer: { group: "store", urls: engine.urls } } : {};
 * const { seeds } = await groupFromFile(`/scratch/store-${job}.json`, offer);
 * const group = await joinGroup("store", { engine, authority: coordinatorAuthority({ seeds }) });
 */
export async function groupFromFile(path: string, options: GroupFromFileOptions = {}): Promise<GroupFile> {
  const { offer, timeoutMs, signal } = resolveOptions("groupFromFile", options, fields);
  if (offer !== undefined) {
    const { group, urls, rank } = offer;
    const text = textOf({ group, version: 0, members: [{ rank, urls }] });
    parsed(path, text);
    await place(path, text, link);
  }
  const untilMs = performance.now() + timeoutMs;
  for (;;) {
    const text = await textAt(path);
    if (text !== undefined) return parsed(path, text);
    if (signal?.aborted)
      throw new RpcError({
        code: "cancelled",
        message: `groupFromFile: the signal aborted before there was a file ${path}`,
        cause: signal.reason,
      });
    if (performance.now() >= untilMs)
      throw new RpcError({
        code: "unavailable",
        message: `groupFromFile: there was no file ${path} for ${timeoutMs} ms`,
      });
    await pause(lookMs, undefined, { signal }).catch(() => undefined);
  }
}

/**
 * Writes a view's members to a file, in one step. Readers see the former file or the new one. An older view than the one
 * in the file is not written. One process should save, as the member with the lowest rank.
 *
 * @returns whether it was written
 * @throws what the file system throws
 *
 * @example
 * group.on("view", ({ view }) => {
 *   if (view.members[0]?.rank === group.self?.rank) void saveGroup(path, view);
 * });
 */
export async function saveGroup(path: string, view: View): Promise<boolean> {
  const former = await textAt(path);
  if (former !== undefined && parsed(path, former).version >= view.version) return false;
  const members = view.members.map(({ rank, urls, detector, metadata }) => ({
    ...{ rank, urls, metadata },
    ...(detector !== undefined && { detector }),
  }));
  return place(path, textOf({ group: view.group, version: view.version, members }), rename);
}

const textOf = (content: Omit<GroupFile, "seeds">): string =>
  `${JSON.stringify({ cinnabarGroup: format, ...content }, undefined, 2)}\n`;

async function textAt(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/**
 * Writes a file beside the path and renames it. With `link` this fails if the path exists. Returns whether it was
 * renamed.
 */
async function place(
  path: string,
  text: string,
  name: (from: string, to: string) => Promise<void>,
): Promise<boolean> {
  const draft = `${path}.${randomBytes(6).toString("hex")}`;
  try {
    const file = await open(draft, "wx", 0o644);
    try {
      await file.writeFile(text);
      // The name must not be there before the content is, also after the host lost its power.
      await file.sync();
    } finally {
      await file.close();
    }
    await name(draft, path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    return false;
  } finally {
    await rm(draft, { force: true });
  }
}

/** @throws RpcError `invalid_argument` that says what is wrong */
function parsed(path: string, text: string): GroupFile {
  const refuse = (why: string): RpcError =>
    new RpcError({ code: "invalid_argument", message: `${path} is no file of a group: ${why}` });
  let content: Partial<GroupFile & { cinnabarGroup: number }> | null;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw refuse((error as Error).message);
  }
  const { cinnabarGroup, group, version, members } = content ?? {};
  if (cinnabarGroup !== format)
    throw refuse(`cinnabarGroup must be ${format}, it is ${String(cinnabarGroup)}`);
  if (typeof group !== "string" || group === "") throw refuse("group must be a name");
  if (!Number.isSafeInteger(version) || (version as number) < 0)
    throw refuse("version must be a whole number");
  if (!Array.isArray(members) || members.length === 0)
    throw refuse("members must be a list that is not empty");
  const ranked = (members as ListedMember[]).map((member, place) => ({
    ...member,
    rank: member.rank ?? place,
  }));
  try {
    makeView(group, 1, ranked.map(viewed));
  } catch (error) {
    throw refuse((error as Error).message);
  }
  ranked.sort((a, b) => a.rank - b.rank);
  return { group, version: version as number, members: ranked, seeds: ranked.flatMap(({ urls }) => urls) };
}

/** As a view has it, so that the rules of views hold. */
function viewed({ rank, urls, detector, metadata = {} }: ListedMember & { readonly rank: number }): Member {
  if (!Array.isArray(urls) || !urls.every((url) => typeof url === "string"))
    throw new TypeError(`rank ${rank} has no list of URLs`);
  return { rank, incarnation: 0, urls, engine: undefined, host: undefined, detector, metadata };
}
