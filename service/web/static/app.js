// Small comforts; every page works without them.
(function () {
  "use strict";

  function offerCopy(root) {
    if (!navigator.clipboard) return;
    root.querySelectorAll("[data-copy]").forEach(function (button) { button.hidden = false; });
  }

  document.addEventListener("click", function (event) {
    var button = event.target.closest("[data-copy]");
    if (!button) return;
    navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent).then(function () {
      button.textContent = "Copied";
    });
  });

  // A chosen file goes into the text area, where it can be read and mended.
  document.addEventListener("change", function (event) {
    var input = event.target;
    if (!input.matches || !input.matches("input[type=file][data-into]") || !input.files.length) return;
    input.files[0].text().then(function (text) {
      var area = document.getElementById(input.dataset.into);
      area.value = text;
      input.value = "";
      area.dispatchEvent(new Event("change", { bubbles: true }));
    });
  });

  function arrive(root) {
    offerCopy(root);
    var faults = root.querySelector("#faults");
    if (faults) faults.focus();
  }

  document.addEventListener("htmx:afterSettle", function (event) {
    var target = event.detail.target || event.target;
    offerCopy(document);
    if (target && target.id === "plan") {
      var title = document.getElementById("headline");
      if (title) { document.title = title.textContent + " · Shardwright"; title.focus(); }
    }
  });
  arrive(document);
})();
