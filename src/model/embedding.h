// The first unit: token (and learned position) embeddings. It has no input gradient.
//
// Where ranks cut layers between them, each has some rows of the table: it looks up the tokens that are its own, and
// the sum over ranks is everybody's. The first rank's part has the positions.
#pragma once
#include "model/build.h"
#include "model/dropout.h"
#include "model/names.h"

namespace lockstep {

class Embedding final : public Unit {
 public:
  Embedding(const Build& build, int unit, const Between& between);

  void forward(const Call& call) const override;
  void backward_input(const Call& call) const override;
  void backward_weight(const Call& call) const override;

  int table() const { return table_; }  // the parameter a tied head reads

 private:
  Between between_;
  DropoutSite dropout_;
  Part vocabulary_;
  int table_;
  int positions_ = -1;
  Slot partial_ = -1, d_whole_ = -1;  // of all tokens; only with sequence parallelism
};

}  // namespace lockstep
