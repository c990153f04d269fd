/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
(function () {
  var FEW = 15, SEARCHED = 6;
  var order = new Intl.Collator("en", {numeric: true});
  document.documentElement.classList.add("js");

  function made(name, text) {
    var element = document.createElement(name);
    element.textContent = text;
    if (name === "button") { element.type = "button"; }
    return element;
  }

  function compared(a, b, column, sign) {
    var one = a.cells[column], other = b.cells[column];
    var empty = (one.textContent === "") - (other.textContent === "");
    if (empty) { return empty; }
    if (one.hasAttribute("data-v") && other.hasAttribute("data-v")) {
      return sign * (Number(one.getAttribute("data-v")) - Number(other.getAttribute("data-v")));
    }
    return sign * order.compare(one.textContent, other.textContent);
  }

  function enrich(table) {
    var body = table.tBodies[0], rows = Array.from(body.rows);
    var heads = Array.from(table.tHead.rows[0].cells);
    var caption = table.getAttribute("aria-label");
    var wanted = "", isWhole = rows.length <= FEW;
    var tools = made("div", ""), said = made("span", ""), all = made("button", "");
    if (rows.length < 2) { return; }

    function show() {
      var seen = 0;
      rows.forEach(function (row) {
        var fits = row.textContent.toLowerCase().indexOf(wanted) >= 0;
        seen += fits ? 1 : 0;
        row.hidden = !fits || !(isWhole || seen <= FEW);
      });
      said.textContent = wanted ? seen + " of " + rows.length : "";
      all.hidden = isWhole || seen <= FEW;
      all.textContent = "Show all " + seen;
    }

    heads.forEach(function (head, column) {
      var button = made("button", head.textContent);
      head.textContent = "";
      head.appendChild(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", function () {
        var was = head.getAttribute("aria-sort");
        var isNumber = rows.some(function (r) { return r.cells[column].hasAttribute("data-v"); });
        var isDown = was === "none" ? isNumber : was === "ascending";
        heads.forEach(function (other) { other.setAttribute("aria-sort", "none"); });
        head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
        rows.sort(function (a, b) { return compared(a, b, column, isDown ? -1 : 1); });
        rows.forEach(function (row) { body.appendChild(row); });
        show();
      });
    });
    tools.className = "tools";
    if (rows.length >= SEARCHED) {
      var label = made("label", "Search "), input = made("input", "");
      input.type = "search";
      input.setAttribute("aria-label", "Search in " + caption);
      input.addEventListener("input", function () {
        wanted = input.value.trim().toLowerCase();
        show();
      });
      label.appendChild(input);
      tools.appendChild(label);
    }
    said.setAttribute("role", "status");
    tools.appendChild(said);
    table.parentNode.insertBefore(tools, table);
    all.addEventListener("click", function () { isWhole = true; show(); });
    table.parentNode.appendChild(all);
    show();
  }

  document.querySelectorAll("table").forEach(enrich);
}());
