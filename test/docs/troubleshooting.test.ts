import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { type Message, messagesOfAddon, messagesOfSources, wordsOf } from "./messages.test-support.ts";
import { root, userPages } from "./pages.test-support.ts";

/** A pattern in the first column of a table "| Message | Cause | Remedy |". */
interface Entry {
  readonly page: string;
  readonly pattern: string;
  readonly cause: string;
  readonly remedy: string;
}

/** The fewest words of a literal of the addon that is a sentence. */
const fewestWords = 5;

const heading = "| Message | Cause | Remedy |";
/** What nobody who runs a program can remedy: faults of peers and of Cinnabar, and ends that were asked for. */
const faults = "docs/design/faults.md";
const entries = [...userPages, faults].flatMap(entriesOf);
const { all, shown } = messagesOfSources();
const addon = messagesOfAddon();

function entriesOf(page: string): Entry[] {
  const lines = readFileSync(root + page, "utf8").split("\n");
  let isInTable = false;
  return lines.flatMap((line) => {
    if (line === heading) isInTable = true;
    else if (!line.startsWith("|")) isInTable = false;
    else if (isInTable && !line.startsWith("|---")) {
      const [, message = "", cause = "", remedy = ""] = line.split(" | ").join("|").split("|");
      return [...message.matchAll(/`([^`]+)`/g)].map(([, pattern = ""]) => ({
        page,
        pattern,
        cause,
        remedy,
      }));
    }
    return [];
  });
}

/** Where a text puts a value, an entry may have any text. */
const value = "\u0001";
const expressions = entries.map(({ pattern }) => expressionOf(pattern));

function expressionOf(pattern: string): RegExp {
  const parts = pattern.split("…").map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join("[^]*")}$`);
}

function isExplained({ text }: Message): boolean {
  const said = text.replaceAll("…", value);
  return expressions.some((expression) => expression.test(said));
}

/** The words between the values and the quotes of a text, which the sources may put together of several literals. */
const partsOf = (text: string) =>
  text.split(/[…"]|; /).map((part) => part.replace(/^[\s:;,(]+|[\s:;,(]+$/g, ""));

/** Texts of the sources that no user meets alone. */
const noMessages: readonly RegExp[] = [
  // Names of schemas of the group's own messages.
  /^the end of an exchange$/,
  // Parts of messages whose whole has an entry.
  /^(before it could be sent|by another process at this address|its caller was silent for too long)$/,
  /^(its answer is not kept any more|… keeps no answers)$/,
  /^…, and (…|whenFull is "fail")$|^…: the call has ended$|^the input$|^line … of the items$/,
  /^……; net:\/\/ and mem:\/\/ work without it$/,
  /^(the port is missing; write|expected) …:\/\/|^an array that holds something else$/,
  /^an? (RDMA device or a port|address and a prefix|global identifier)/,
  // Faults of bytes, thrown and then said behind "broke the protocol".
  /^(push|next): chunk …|^(an )?items? (of|came)|^the items of call …|^the end had come before$|^pull(ed|ing) (has|counts)/,
  /^call … |^call id …|^(the )?credits (of|came)|^frame kind …|^a put notification (for|that)|^a second answer/,
  /^(a region arrived in a|a request carries more|the regions of a request have more|unknown method number)/,
  /^a frame came that|^a message without a number is no keepalive|^TLS goes on before|^the acceptor('s terms| wants| chose)|^a cookie has/,
  // Faults of the package itself.
  /^(sessions have|… has) no …?|^no two parts of a session/,
  // What `cinnabar why` says of calls, and what `top` and `tail` print: their sections explain it.
  /^(waits (for a place|in admission)|a session with … is being|an attempt has failed, and|the event loop of its)/,
  /^its (long answer|caller has given|server does not have|handler (has ended|runs))|^sent to …; give the URL/,
  /^Shows .*\.$|^(… |cinnabar tail: …: … )more calls were left out$|^; s: next column/,
  // Descriptions in schemas.
  /^only calls (of this service|that have failed)/,
  // Code that is generated.
  /^\/\/ (The contract …, for|Declared errors, each)|^import "google\/|^\s*into = roomFor\(|^roomFor, |^"use strict";|^\nconst \{ createPrivateKey, /,
  // What commands print when all is well.
  /^Usage: cinnabar|^\nConnection\. |^`cinnabar COMMAND --help`|^Built …|^Locked memory|^Fork safety/,
  /^(Builds|Prints|Makes|Calls|Measures|Loads|Serves|Starts|Writes) .*\.$|^any amount can be pinned$/,
  /^…: connected in …, with|^… sent, (…|none) answered|^its event loop does not answer$/,
  /^… calls(\/s)?, … |^… at …, … loop$|^listening at …$/,
  /^served … calls, of which |^… us of this process by call$/,
  /^cinnabar serve: …$|^stops on …$|^… is ready$/,
  // The picture of `cinnabar bench`.
  /^<(svg|style|text|rect|meta) ?.*>$/,
  /^ended: … reads, |^…: … bytes(, blocks of | now$)|^… (reads|writes)\/s …B\/s$/,
  // Scripts for shells, and the manual page.
  /^_cinnabar\(\) \{|^#compdef |^function __cinnabar|^\.Nd |^(1|65 to 80|130, 143, 141): /,
  // Paths, names of ciphers, and the platforms that a message lists.
  /native\/build\/Release|^\/proc\/sys|^\.\.\/\.\.\/native|^TLS_|^Linux on x64 and arm64 with glibc 2\.28 or later$/,
  // Lines of `cinnabar info` that are no complaints.
  /^This machine can use …\./,
  /^… more cannot be used here: cinnabar info --all says why$/,
];

/** Texts of the addon that say something else than why it cannot do what was asked. */
const noReasons: readonly RegExp[] = [
  // What the package itself passes wrongly, which no user can.
  /^the port is not open|^slots that fit no (slab|ring)/,
  // What stands in a message behind words that have an entry.
  /^reading and writing a peer's|^messages in the order|^memory registration without|^an? .* (adapter|interface|transport) /i,
  /^an Elastic Fabric|^a transport that UCX|^\) and point CINNABAR_LIBFABRIC|^; FI_LOG_LEVEL|^: let udev give|are of different IP versions$/,
  // Said by `cinnabar info` alone, of a patch that is switched off.
  /^this libfabric does not call|^off; CINNABAR_PATCHES/,
  // For those who compile it.
  /^libfabric's headers must be/,
];

describe("the tables of error messages in the guide", () => {
  it("have a cause and a remedy for each message, and no pattern that fits everything", () => {
    expect(entries.length).toBeGreaterThan(200);
    expect(entries.filter(({ cause, remedy }) => wordsOf(cause) < 1 || wordsOf(remedy) < 1)).toEqual([]);
    expect(entries.filter(({ pattern }) => wordsOf(pattern) < 2 && !/\w+: …$/.test(pattern))).toEqual([]);
  });

  it("stand on one page of the guide, and ask nobody to report a fault", () => {
    const ofUsers = entries.filter(({ page }) => page !== faults);
    expect([...new Set(ofUsers.map(({ page }) => page))]).toEqual(["docs/guide/troubleshooting.md"]);
    expect(ofUsers.filter(({ remedy }) => /\breport (it|what)\b|^\s*Nothing/i.test(remedy))).toEqual([]);
  });

  it("explain every message of the package that a user may meet", () => {
    const missing = shown.filter((message) => !isExplained(message));
    const unknown = missing.filter(({ text }) => !noMessages.some((expression) => expression.test(text)));
    expect(unknown.map(({ text, at }) => `${text}   (${at})`)).toEqual([]);
  });

  it("explain every sentence of the addon that says why something cannot be opened", () => {
    const sentences = addon.filter(({ text }) => wordsOf(text) >= fewestWords);
    const parts = entries.flatMap(({ pattern }) => partsOf(pattern)).filter((part) => wordsOf(part) >= 2);
    const missing = sentences.filter(({ text }) => {
      const said = text.trim();
      return !parts.some((part) => said.includes(part) || part.includes(said));
    });
    const unknown = missing.filter(({ text }) => !noReasons.some((expression) => expression.test(text)));
    expect(unknown.map(({ text, at }) => `${text}   (${at})`)).toEqual([]);
    expect(sentences.length).toBeGreaterThan(30);
  });

  it("name no message that the sources do not have", () => {
    const texts = [...all, ...addon].map(({ text }) => text);
    const stale = entries.filter(({ pattern }) =>
      partsOf(pattern).some(
        (part) => wordsOf(part) >= 2 && !texts.some((text) => text.replaceAll("\\n", " ").includes(part)),
      ),
    );
    expect(stale.map(({ page, pattern }) => `${page}: ${pattern}`)).toEqual([]);
  });
});
