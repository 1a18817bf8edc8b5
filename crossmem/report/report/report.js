// The one switch of the page: open or close all folded code. Everything reads without it.
(() => {
  const button = document.getElementById("toggle-code");
  const blocks = [...document.querySelectorAll("details.code")];
  if (blocks.length === 0) return;
  const allOpen = () => blocks.every((block) => block.open);
  const label = () => {
    button.textContent = allOpen() ? "Hide all code" : "Show all code";
  };
  button.addEventListener("click", () => {
    const open = !allOpen();
    blocks.forEach((block) => { block.open = open; });
    label();
  });
  blocks.forEach((block) => block.addEventListener("toggle", label));
  button.hidden = false;
})();
