// For the installed package cinnabar-nvme: a device on a file keeps what it was given, a cut of power takes what was not
// flushed, and an NBD server greets.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { losesPower, memoryDevice, openFileDevice, serveNbd } from "cinnabar-nvme";

const block = Buffer.alloc(4096, 7);
const device = await openFileDevice("disk.img", { bytes: 1024 * 1024 });
await device.write(4096, block, { fua: true });
assert.equal(await device.compare(4096, block), true);

const server = await serveNbd(device);
const socket = connect(new URL(server.uri).searchParams.get("socket") ?? "");
const [greeting] = await once(socket, "data");
assert.equal(greeting.toString("latin1", 0, 16), "NBDMAGICIHAVEOPT");
await server.close();
await device.close();

const disk = losesPower(memoryDevice({ bytes: 1024 * 1024 }));
await disk.write(0, block);
await disk.cutPower();
await disk.restorePower();
assert.equal(await disk.compare(0, Buffer.alloc(4096)), true);
await disk.close();
console.log("cinnabar-nvme works");
