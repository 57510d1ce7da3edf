// `npm publish` in the checkout, which would publish a package without binaries.
console.error(
  "Publish the file that `npm run release` makes: npm publish ./dist-packages/cinnabar-VERSION.tgz",
);
process.exitCode = 1;
