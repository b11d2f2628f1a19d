# k by leave-one-out with class::knn.cv, predictions by class::knn.
#
#   Rscript knn_cv.R FOLDER "1 2 3"     choose k among these; prints k and processor seconds
#   Rscript knn_cv.R FOLDER 5 predict   predict new.csv; prints the seconds of one row, then for
#                                       each row the label and its share of the votes
#
# FOLDER holds points.csv, labels.csv and new.csv without headers.
library(class)
given <- commandArgs(trailingOnly = TRUE)
set.seed(0)  # knn breaks ties at random
read <- function(name) as.matrix(read.csv(file.path(given[1], name), header = FALSE))
points <- read("points.csv")
labels <- factor(read("labels.csv")[, 1])
ks <- as.integer(strsplit(given[2], " ")[[1]])
if (length(given) == 2) {
  took <- system.time(
    errors <- sapply(ks, function(k) mean(knn.cv(points, labels, k = k) != labels))
  )
  cat(ks[which.min(errors)], took[["user.self"]] + took[["sys.self"]], "\n")
} else {
  new <- read("new.csv")
  repeats <- 200
  took <- system.time(
    for (i in seq_len(repeats)) knn(points, new[1, , drop = FALSE], labels, k = ks, prob = TRUE)
  )
  cat((took[["user.self"]] + took[["sys.self"]]) / repeats, "\n")
  found <- knn(points, new, labels, k = ks, prob = TRUE)
  cat(paste(found, attr(found, "prob")), sep = "\n")
}
