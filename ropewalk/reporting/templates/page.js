// Pointing at a member in a figure or table dims all other members on the page.
const drawn = [...document.querySelectorAll('[class*="member-"]')];
const memberOf = (element) => [...element.classList].find((name) => name.startsWith("member-"));
const light = (member) => drawn.forEach(
  (element) => element.classList.toggle("away", Boolean(member) && memberOf(element) !== member));
for (const element of drawn) {
  element.addEventListener("pointerenter", () => light(memberOf(element)));
  element.addEventListener("pointerleave", () => light(null));
}

// Show one option of each choice.
for (const choice of document.querySelectorAll(".choice")) {
  const buttons = [...choice.querySelectorAll(".tabs button")];
  const options = [...choice.querySelectorAll(".option")];
  const show = (shown) => options.forEach((option, index) => {
    option.hidden = index !== shown;
    buttons[index]?.setAttribute("aria-pressed", index === shown);
  });
  buttons.forEach((button, index) => button.addEventListener("click", () => show(index)));
  show(0);
}
