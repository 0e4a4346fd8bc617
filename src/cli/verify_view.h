// What `verify` shows of its reports, as tables and as JSON.
#pragma once
#include "data/story_grammar.h"
#include "data/tokenizer/tokenizer_cases.h"
#include "train/layout_trial.h"
#include "train/reference.h"

namespace lockstep {

void print_table(const ReferenceReport& report);
void print_json(const ReferenceReport& report);
void print_table(const LayoutReport& report, const LayoutSpec& first, bool exact);
void print_json(const LayoutReport& report, const LayoutSpec& first);
void print_table(const StoryCount& count);
void print_json(const StoryCount& count);
void print_table(const TokenizerCases& report);
void print_json(const TokenizerCases& report);

}  // namespace lockstep
