// Scores of search results: guides, explanation and reference before records of decisions, benchmarks and the changelog.
const LAST = /^(decisions\/|changelog$|benchmarks$|architecture$|row_pattern_search$)/;
const FIRST = /^(tutorial|how_to|explanation|patterns|rules)\/|^(patterns|rules|tables|live|hosts|streaming|match_recognize|windows|joins|operators|console|glossary)$/;

var Scorer = {
  score: ([page, , , , score]) => score + (LAST.test(page) ? -1000 : FIRST.test(page) ? 5 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
