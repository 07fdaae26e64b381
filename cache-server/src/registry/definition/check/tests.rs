//! Definitions against kube-apiserver's answers.
