// `npm publish` in the checkout, and `npm pack` in a folder of packages/: what that makes would lack binaries, or code.
console.error(
  "Publish the files that `npm run release` makes: npm publish ./dist-packages/NAME-VERSION.tgz. `npm run package` makes " +
    "them without tests.",
);
process.exitCode = 1;
