import { isIP, isIPv4 } from "node:net";
import { UsageError } from "../command.ts";
import { implicit, sequence } from "./der.ts";

/** The names of a certificate, by kind. */
export interface Names {
  readonly dns: readonly string[];
  readonly ips: readonly string[];
  readonly uris: readonly string[];
}

const label = "[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?";
const dnsPattern = new RegExp(`^(?=.{1,253}$)(\\*\\.)?${label}(\\.${label})*$`);

/** @throws UsageError that names what is no name. */
export function assertNames({ dns, ips, uris }: Names): void {
  for (const name of dns)
    if (!dnsPattern.test(name) || isIP(name) !== 0) throw new UsageError(`"${name}" is no DNS name`);
  for (const ip of ips)
    if (isIP(ip) === 0 || ip.includes("%")) throw new UsageError(`"${ip}" is no IP address`);
  for (const uri of uris) {
    // A program that prints the name could take a comma or a quote for its end.
    if (!URL.canParse(uri) || !/^[\x21-\x7e]+$/.test(uri) || /[",\\]/.test(uri))
      throw new UsageError(`"${uri}" is no URI of plain characters, such as spiffe://cluster.example/node-7`);
  }
  if (dns.length === 0 && uris.length === 0)
    throw new UsageError("give a --dns or a --uri: an engine takes the name of a peer from them");
}

/** The value of the extension subjectAltName (RFC 5280, 4.2.1.6). */
export function alternativeNames({ dns, ips, uris }: Names): Buffer {
  return sequence(
    ...uris.map((uri) => implicit(6, Buffer.from(uri, "latin1"))),
    ...dns.map((name) => implicit(2, Buffer.from(name, "latin1"))),
    ...ips.map((ip) => implicit(7, addressBytes(ip))),
  );
}

function addressBytes(ip: string): Buffer {
  if (isIPv4(ip)) return Buffer.from(ip.split(".").map(Number));
  // Without dots and in lower case: eight groups, some of them shortened to "::".
  const [head = "", tail] = new URL(`http://[${ip}]`).hostname.slice(1, -1).split("::");
  const groupsOf = (text: string) => (text === "" ? [] : text.split(":"));
  const before = groupsOf(head);
  const after = groupsOf(tail ?? "");
  const zeros = new Array<string>(tail === undefined ? 0 : 8 - before.length - after.length).fill("0");
  const bytes = Buffer.alloc(16);
  for (const [index, group] of [...before, ...zeros, ...after].entries())
    bytes.writeUInt16BE(Number.parseInt(group, 16), 2 * index);
  return bytes;
}
