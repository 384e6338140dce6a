// Pointing at a member in any figure or table leaves only that member bright, everywhere.
const drawn = [...document.querySelectorAll('[class*="member-"]')];
const memberOf = (element) => [...element.classList].find((name) => name.startsWith("member-"));
const light = (member) => drawn.forEach(
  (element) => element.classList.toggle("away", Boolean(member) && memberOf(element) !== member));
for (const element of drawn) {
  element.addEventListener("pointerenter", () => light(memberOf(element)));
  element.addEventListener("pointerleave", () => light(null));
}

// Of a choice, one option is shown.
for (const choice of document.querySelectorAll(".choice")) {
  const buttons = [...choice.querySelectorAll(".tabs button")];
  const options = [...choice.querySelectorAll(".option")];
  const show = (shown) => options.forEach((option, place) => {
    option.hidden = place !== shown;
    buttons[place]?.setAttribute("aria-pressed", place === shown);
  });
  buttons.forEach((button, place) => button.addEventListener("click", () => show(place)));
  show(0);
}
